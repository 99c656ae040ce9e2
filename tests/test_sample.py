"""sample as its user sees it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import sparsefactor as sf

PRIOR = sf.Prior(n_factors=2, inclusion=0.5)
SHORT = {"n_chains": 2, "n_warmup": 30, "n_draws": 20}


@pytest.fixture(scope="module")
def easy() -> sf.Simulation:
    return sf.simulate(n_features=30, n_samples=25, inclusion=[0.5, 0.5], snr=10, seed=1)


def same(p: sf.MCMCPosterior, q: sf.MCMCPosterior) -> bool:
    return bool(p.draws["posterior"].to_dataset().identical(q.draws["posterior"].to_dataset()))


@pytest.mark.parametrize("noise", ["feature", "shared", "sample"])
@pytest.mark.parametrize("inclusion", [0.5, sf.Beta(1, 1)])
def test_draws_are_a_datatree_with_named_dims(easy, noise, inclusion):
    prior = sf.Prior(n_factors=2, inclusion=inclusion, noise=noise)
    frame = pd.DataFrame(easy.X, index=[f"s{j}" for j in range(25)], columns=[f"g{i}" for i in range(30)])
    mc = sf.sample(frame, prior, **SHORT, thin=2)
    draws = mc.draws["posterior"]
    assert draws["loadings"].dims == ("chain", "draw", "feature", "factor")
    assert draws["activations"].dims == ("chain", "draw", "observation", "factor")
    assert draws["loadings"].shape == (2, 20, 30, 2)
    assert draws["inclusion"].dtype == bool
    own = {"feature": ("feature",), "shared": (), "sample": ("observation",)}[noise]
    assert draws["noise_precision"].dims == ("chain", "draw", *own)
    assert ("inclusion_rate" in draws) == prior.learns_inclusion
    assert list(draws["feature"].values[:2]) == ["g0", "g1"]
    assert np.all((draws["loadings"].values != 0) == draws["inclusion"].values)
    assert mc.noise_precision_mean.shape == draws["noise_precision"].shape[2:]
    assert mc.draws["sample_stats"]["lp"].shape == (2, 20)


def test_recovers_an_easy_truth(easy):
    mc = sf.sample(easy.X, PRIOR, n_chains=2, n_warmup=100, n_draws=100)
    score = sf.score(mc, easy)
    assert score["z_accuracy"] > 0.9
    assert score["rrmse_signal"] < 0.2
    other = sf.simulate(n_features=30, n_samples=25, inclusion=[0.5, 0.5], snr=10, seed=2)
    assert sf.score(mc, other)["rrmse_signal"] > 0.9  # negative control


def test_same_seed_same_bits_and_different_seeds_differ(easy):
    first, second, other = (sf.sample(easy.X, PRIOR, **SHORT, seed=s) for s in (3, 3, 4))
    assert same(first, second)
    assert not same(first, other)


def test_chains_differ(easy):
    mc = sf.sample(easy.X, PRIOR, **SHORT, init="random")
    L = mc.draws["posterior"]["loadings"].values
    assert not np.array_equal(L[0], L[1])


def test_missing_entries_have_no_influence(easy):
    X = easy.X.copy()
    X[np.random.default_rng(0).random(X.shape) < 0.2] = np.nan
    masked = np.ma.masked_array(np.where(np.isnan(X), -1e6, X), mask=np.isnan(X))
    assert same(sf.sample(X, PRIOR, **SHORT), sf.sample(masked, PRIOR, **SHORT))
    changed = X.copy()
    row, column = np.argwhere(~np.isnan(X))[0]
    changed[row, column] += 1.0
    assert not same(sf.sample(X, PRIOR, **SHORT), sf.sample(changed, PRIOR, **SHORT))


def test_reconstruction_is_the_mean_over_draws(easy):
    mc = sf.sample(easy.X + 5.0, PRIOR, **SHORT, center=True)
    draws = mc.draws["posterior"]
    signal = np.einsum("cdnk,cdgk->ng", draws["activations"].values, draws["loadings"].values) / 40
    assert np.allclose(mc.reconstruct(), signal + (easy.X + 5.0).mean(axis=0))


def test_relabelling_can_be_undone_and_changes_no_product(easy):
    mc = sf.sample(easy.X, PRIOR, **SHORT, init="random")
    assert mc.permutations.shape == (2, 20, 2)
    assert set(np.unique(mc.signs)) <= {-1, 1}


def test_factors_may_exceed_samples_and_features():
    sim = sf.simulate(n_features=12, n_samples=10, inclusion=[0.5], snr=10, seed=1)
    mc = sf.sample(sim.X, sf.Prior(n_factors=13, inclusion=0.2), n_chains=1, n_warmup=5, n_draws=5)
    assert np.all(np.isfinite(mc.loadings_mean))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_chains": 0}, "n_chains must be a whole number of at least 1; got 0"),
        ({"n_warmup": -1}, "n_warmup must be"),
        ({"n_draws": 0}, "n_draws must be"),
        ({"thin": 0}, "thin must be"),
        ({"moves": ("jump",)}, "moves must be among"),
        ({"init": "magic"}, "init must be one of"),
    ],
)
def test_bad_settings_are_refused(easy, options, message):
    with pytest.raises(ValueError, match=message):
        sf.sample(easy.X, PRIOR, **{**SHORT, **options})
