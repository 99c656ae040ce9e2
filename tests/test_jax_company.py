"""Chains that one program sweeps together: the chains that each would be alone, to rounding."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import sparsefactor as sf
from sparsefactor.engine import jax_company
from sparsefactor.engine.jax_company import Company, beside
from sparsefactor.engine.jax_engine import JaxEngine
from sparsefactor.kernels.jax.library import jax, jnp, x64

G, N, K = 40, 20, 3
NAMES = ("loadings", "inclusion", "activations", "noise_precision", "loading_precision")


def data_of(missing: float = 0.0):
    X = sf.simulate(n_features=G, n_samples=N, inclusion=[0.3, 0.3, 0.8], snr=5, seed=0).X
    return np.where(np.random.default_rng(1).random(X.shape) < missing, np.nan, X) if missing else X


def run(X, **more):
    options = {"n_factors": K, "n_chains": 3, "n_warmup": 3, "n_draws": 4, "init": "varimax", "seed": 3}
    with pytest.warns(sf.SamplingWarning):
        return sf.sample(X, **options | more)


def same_draws(one, other, **tolerance):
    for name in NAMES:
        pair = [np.asarray(each.draws["posterior"][name]) for each in (one, other)]
        np.testing.assert_allclose(*pair, err_msg=name, **tolerance)


@pytest.fixture
def calls(monkeypatch):
    """How many were answered by each common call, and what it was."""
    told, whole = [], jax_company.together

    def noted(function, shared, many, static):
        told.append((function.__name__, len(many)))
        return whole(function, shared, many, static=static)

    monkeypatch.setattr(jax_company, "together", noted)
    return told


def test_chains_together_are_the_chains_of_the_cpu(calls):
    moves = ("scale", "shear")
    cpu, together = (run(data_of(), backend=backend, moves=moves) for backend in ("cpu", "jax"))
    same_draws(together, cpu, rtol=1e-6, atol=1e-8)
    assert {n for _, n in calls} == {3}
    steps = [name for name, _ in calls if name == "gibbs_step"]
    assert len(steps) == 7, "one call a sweep for all chains"


@pytest.mark.slow
@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_all_moves_a_design_and_a_run_that_goes_on(missing, tmp_path, calls):
    cpu, together = (run(data_of(missing), backend=backend) for backend in ("cpu", "jax"))
    same_draws(together, cpu, rtol=1e-5, atol=1e-7)
    assert calls
    seen = []
    stopped = {"callback": lambda now: seen.append(now.sweep) or (now.chain == 1 and now.kept == 1)}
    run(data_of(missing), backend="jax", path=tmp_path / "run", **stopped)
    gone_on = run(data_of(missing), backend="jax", path=tmp_path / "run")
    same_draws(gone_on, together, rtol=1e-5, atol=1e-6)  # on disk in single precision


@pytest.mark.slow
def test_the_kernel_of_a_row_takes_chains_one_after_the_other(monkeypatch):
    whole = JaxEngine.__init__

    def interpreted(self, *args, **kw):
        whole(self, *args, **kw)
        self.kind = self.kind._replace(kernel="interpreted")

    alone = run(data_of(), backend="jax", moves=())
    monkeypatch.setattr(JaxEngine, "__init__", interpreted)
    same_draws(run(data_of(), backend="jax", moves=()), alone, rtol=1e-6, atol=1e-8)


@jax.jit
def doubled(shared, x):
    return shared + 2.0 * x


def test_whoever_leaves_or_fails_does_not_keep_the_others_waiting():
    """Nor without 64 bits."""
    with x64():
        company, shared, found = Company(3), jnp.array(1.0 + 2.0**-40), {}

    def member(number, n):
        with company.member(), x64():
            for i in range(n):
                value = np.ones(2) * number if (number, i) != (2, 1) else "not an array"
                try:
                    found[number, i] = float(np.sum(beside(doubled, (shared,), (value,))))
                except TypeError:
                    found[number, i] = None
                    return

    threads = [threading.Thread(target=member, args=(number, n)) for number, n in enumerate((1, 4, 3))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    small = 2.0**-39  # of the two numbers together
    assert found == {(0, 0): 2.0 + small, **{(1, i): 6.0 + small for i in range(4)}, (2, 0): 10.0 + small, (2, 1): None}


def test_chains_that_do_not_fit_together_are_swept_one_by_one(monkeypatch):
    data = sf.data.as_data(data_of())
    engine = JaxEngine(data, sf.Prior(n_factors=K))
    assert isinstance(engine.company(4), Company)
    assert engine.company(1) is None
    monkeypatch.setattr("sparsefactor.engine.jax_engine.ROOM", 40 * G * K * K * 3)
    assert engine.company(4) is None
    assert isinstance(engine.company(3), Company)
