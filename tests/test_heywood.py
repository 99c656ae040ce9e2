"""Features whose noise has vanished are named, wherever a result is put into words."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import sparsefactor as sf
from sparsefactor.cli import app
from sparsefactor.heywood import heywood_sentence, nearly_noiseless, noise_share
from sparsefactor.words import story


def with_copies(scale: float = 1.0) -> np.ndarray:
    """Forty features with 40 % noise each, and two that are the same but for a thousandth."""
    sim = sf.simulate(n_features=40, n_samples=120, inclusion=[0.4, 0.4], snr=1.5, seed=2)
    rng = np.random.default_rng(0)
    X = sim.X.copy()
    X[:, 7] = rng.standard_normal(120)
    X[:, 21] = 3.0 * X[:, 7] + 0.003 * rng.standard_normal(120)
    return scale * X


@cache
def fitted(scale: float, standardised: bool) -> sf.VIPosterior:
    return sf.fit_vi(with_copies(scale), n_factors=4, scale=standardised, seed=0)


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6, 1e140])
@pytest.mark.parametrize("standardised", [False, True])
def test_near_copies_are_named_in_any_units(scale: float, standardised: bool) -> None:
    p = fitted(scale, standardised)
    assert set(nearly_noiseless(p)) == {7, 21}
    said = heywood_sentence(p)
    assert str(p.feature_names[7]) in said
    assert str(p.feature_names[21]) in said
    assert said in repr(p)
    assert said in story(p)


def test_the_share_is_the_noise_over_the_variance() -> None:
    for scale in (1.0, 1e6):
        X, p = with_copies(scale), fitted(scale, False)
        np.testing.assert_allclose(noise_share(p), 1.0 / p.noise_precision_mean / X.var(axis=0), rtol=1e-9)


def test_ordinary_features_and_other_noise_are_not_named() -> None:
    sim = sf.simulate(n_features=40, n_samples=120, inclusion=[0.4, 0.4], snr=1.5, seed=2)
    assert heywood_sentence(sf.fit_vi(sim.X, n_factors=4, seed=0)) == ""
    shared = sf.fit_vi(with_copies(), sf.Prior(n_factors=4, noise="shared"), seed=0)
    assert nearly_noiseless(shared) == []


def test_draws_name_them() -> None:
    mc = sf.sample(with_copies(), n_factors=4, n_warmup=100, n_draws=100, n_chains=2, seed=0, progress=False)
    assert set(nearly_noiseless(mc)) == {7, 21}
    assert heywood_sentence(mc) in repr(mc)


def test_the_command_line_names_them(tmp_path: Path) -> None:
    p = fitted(1.0, False)
    p.save(tmp_path / "fit.sf")
    told = CliRunner().invoke(app, ["summary", str(tmp_path / "fit.sf")])
    assert heywood_sentence(p)[:60] in " ".join(told.stdout.split())
    facts = json.loads(CliRunner().invoke(app, ["summary", str(tmp_path / "fit.sf"), "--json"]).stdout)
    assert set(facts["hardly_any_noise"]) == {7, 21}
