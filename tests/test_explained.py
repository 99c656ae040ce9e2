"""Variance explained is measured against the data, the same way for both methods, after saving, and for some chains."""

import numpy as np
import pytest

import sparsefactor as sf
from sparsefactor.data import as_data
from sparsefactor.explained import fit_sums, is_empty

SIM = sf.simulate(n_features=40, n_samples=30, inclusion=[0.3, 0.6], snr=2, seed=3)
HOLES = SIM.X.copy()
HOLES[np.random.default_rng(0).random(HOLES.shape) < 0.1] = np.nan
PRIOR = sf.Prior(n_factors=4, inclusion=sf.Beta(1, 1))


@pytest.fixture(scope="module", params=["complete", "missing"])
def X(request) -> np.ndarray:
    return SIM.X if request.param == "complete" else HOLES


@pytest.fixture(scope="module", params=["vi", "average", "mcmc"])
def fitted(request, X):
    if request.param == "mcmc":
        return sf.sample(X, PRIOR, n_chains=3, n_warmup=50, n_draws=60, progress=False)
    return sf.fit_vi(X, PRIOR, n_trials=3, average=request.param == "average")


def by_hand(X: np.ndarray, fit: np.ndarray) -> tuple[float, np.ndarray]:
    """Entry by entry, from the definition."""
    rss = np.nansum((X - fit) ** 2, axis=0)
    total = np.nansum((X - np.nanmean(X, axis=0)) ** 2, axis=0)
    return 1 - rss.sum() / total.sum(), 1 - rss / total


def test_total_and_features_follow_the_definition(X, fitted) -> None:
    total, features = by_hand(X, np.asarray(fitted.reconstruct()))
    assert fitted.variance_explained() == pytest.approx(total, abs=1e-12)
    np.testing.assert_allclose(fitted.variance_explained(by="feature"), features, atol=1e-12)


def test_a_factors_share_is_what_leaving_it_out_costs(X, fitted) -> None:
    if isinstance(fitted, sf.MCMCPosterior):  # the chains' contributions, averaged
        draws = fitted.draws["posterior"].to_dataset()
        L, F = (draws[name].mean("draw").values for name in ("loadings", "activations"))
        parts = np.einsum("cjk,cik->kji", F, L) / len(L)
    else:
        parts = np.einsum("jk,ik->kji", fitted.activations_mean, fitted.loadings_mean)
    whole = np.asarray(fitted.reconstruct())
    cost = [fitted.variance_explained() - by_hand(X, whole - part)[0] for part in parts]
    np.testing.assert_allclose(fitted.variance_explained(by="factor"), cost, atol=1e-12)


def test_a_poor_fit_is_not_flattered() -> None:
    """What the factors' own sum would call 100 % is what they explain of the data."""
    sim = sf.simulate(n_features=80, n_samples=60, inclusion=[0.3, 0.3], snr=0.3, seed=1)
    p = sf.fit_vi(sim.X, sf.Prior(n_factors=2, inclusion=0.3), n_trials=3)
    assert 0.05 < p.variance_explained() < 0.35
    assert p.variance_explained(by="factor").sum() == pytest.approx(p.variance_explained(), abs=0.1)


def test_chains_can_be_left_out_and_weighted(X) -> None:
    mc = sf.sample(X, PRIOR, n_chains=3, n_warmup=20, n_draws=30, progress=False)
    for some in (mc.keep_chains([0, 2]), mc.combine([0.2, 0.0, 0.8]), mc.keep_chains([1]).combine([1.0])):
        total, features = by_hand(X, np.asarray(some.reconstruct()))
        assert some.variance_explained() == pytest.approx(total, abs=1e-12)
        np.testing.assert_allclose(some.variance_explained(by="feature"), features, atol=1e-12)
        shares = some.variance_explained(by="factor")
        assert np.all(np.diff(shares[~some.empty]) <= 0)


def test_it_survives_a_file(tmp_path, fitted) -> None:
    fitted.save(tmp_path / "p.sf")
    again = sf.load(tmp_path / "p.sf")
    for by in (None, "factor", "feature"):
        np.testing.assert_array_equal(again.variance_explained(by=by), fitted.variance_explained(by=by))
    assert again.record == fitted.record
    assert again.record["version"] == sf.__version__


def test_uncentred_data_are_measured_around_their_mean() -> None:
    X = SIM.X + 7.0
    p = sf.fit_vi(X, sf.Prior(n_factors=3, inclusion=0.5), n_trials=2)
    assert p.variance_explained() == pytest.approx(by_hand(X, np.asarray(p.reconstruct()))[0], abs=1e-10)


def test_a_constant_feature_has_none() -> None:
    X = SIM.X.copy()
    X[:, 3] = 0.1  # its mean rounds
    data = as_data(X, center=True)
    L, F = np.zeros((1, 40, 1)), np.zeros((1, 30, 1))
    sums = fit_sums(data, [lambda rows: np.zeros((40, 30))[rows]], L, F)
    assert sums.total[3] == 0.0
    assert np.all(np.delete(sums.total, 3) > 0.1)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(("scale", "offset"), [(1e149, 0.0), (1e140, 1e140), (1e-150, 0.0), (1e-6, 1e3), (1.0, 1e10)])
def test_shares_do_not_depend_on_units_and_offsets(scale, offset, missing) -> None:
    X = HOLES if missing else SIM.X
    plain, other = (sf.fit_vi(values, PRIOR, n_trials=1, seed=0) for values in (X, scale * X + offset))
    for by in (None, "factor", "feature"):
        np.testing.assert_allclose(other.variance_explained(by=by), plain.variance_explained(by=by), rtol=0, atol=1e-4)
    np.testing.assert_array_equal(other.empty, plain.empty)


def test_shares_of_draws_do_not_depend_on_units() -> None:
    options = {"n_chains": 1, "n_warmup": 20, "n_draws": 20, "init": "varimax", "seed": 0, "progress": False}
    plain, other = (sf.sample(scale * SIM.X, PRIOR, **options) for scale in (1.0, 1e140))
    np.testing.assert_allclose(other.variance_explained(by="feature"), plain.variance_explained(by="feature"), atol=0.1)


def test_single_precision_keeps_features_with_a_large_mean() -> None:
    """Means are removed in double precision, so that they do not limit what is left."""
    plain, other = (sf.fit_vi(SIM.X + mean, PRIOR, n_trials=1, dtype=np.float32) for mean in (0.0, 1e7))
    np.testing.assert_allclose(
        other.variance_explained(by="feature"), plain.variance_explained(by="feature"), atol=1e-3
    )


def test_data_that_do_not_vary_around_their_means_have_no_share() -> None:
    p = sf.fit_vi(np.tile(np.arange(5.0), (7, 1)), sf.Prior(n_factors=2), n_trials=1, center=False)
    assert np.isnan(p.variance_explained())
    assert np.isnan(p.variance_explained(by="factor")).all()


def test_what_is_empty() -> None:
    total = np.ones(60)
    np.testing.assert_array_equal(is_empty([0.5, 1.1e-2, 0.9e-2, 0.0], total), [False, False, True, True])
    wide = np.ones(20_000)  # a factor of one feature of which it explains a half
    np.testing.assert_array_equal(is_empty([0.5, 0.1], wide), [False, True])


def test_refusals() -> None:
    p = sf.fit_vi(SIM.X, PRIOR, n_trials=1)
    with pytest.raises(ValueError, match="by must be None, 'factor', 'feature', 'group' or 'sample'; got 'entry'"):
        p.variance_explained(by="entry")
    from dataclasses import replace

    with pytest.raises(ValueError, match="an older version wrote it; fit again"):
        replace(p, fit_sums=None).variance_explained()
