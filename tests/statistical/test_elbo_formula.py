"""The ELBO that fits report, against one written separately, entry by entry, in the settings of the calibration."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.elbo import direct_elbo, q_of
from tests.helpers.joint import draw_data, draw_prior
from tests.helpers.modules import direct_module_elbo, started
from tests.helpers.problems import random_vi_state
from tests.helpers.sbc import G, N, draw_mask, settings

from sparsefactor.engine import build_engine
from sparsefactor.vi.cavi import CAVI
from sparsefactor.vi.modules import one_module, under_modules

SEEDS = 3


@pytest.mark.slow
@pytest.mark.parametrize("joint", [False, True], ids=["independent", "joint"])
@pytest.mark.parametrize("setting", list(settings()), ids=str)
def test_the_elbo_is_that_of_its_definition(setting, joint):
    prior = setting.prior
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        data = draw_data(draw_prior(prior, rng, G, N), draw_mask(setting.missing, rng), rng)
        one = one_module(prior)
        plain = CAVI(data, one, build_engine(data, one, "cpu", n_threads=1), joint=joint)
        cavi = under_modules(plain, prior.n_modules) if prior.n_modules > 1 else plain
        state = started(cavi, plain, seed) if prior.n_modules > 1 else random_vi_state(plain, seed)
        before = -np.inf
        for _ in range(15):
            q = q_of(data, prior, state.rows, state.columns)
            if prior.n_modules > 1:
                own = direct_module_elbo(data, prior, q, state.rows, state.columns)
            else:
                own = direct_elbo(data, prior, q)
            assert state.elbo == pytest.approx(own, rel=1e-9, abs=1e-7)
            assert state.elbo >= before - 1e-8 * abs(before)
            before, state = state.elbo, cavi.sweep(state)
