"""Strongest factor first, loadings with a positive sum, empty ones last: the same in both methods, draws too."""

import numpy as np
import pytest
from scipy.special import digamma

import sparsefactor as sf
from sparsefactor.arrange import arrangement
from sparsefactor.data import as_data
from sparsefactor.engine import build_engine
from sparsefactor.explained import FitSums
from sparsefactor.mcmc.dispersed import searched_start

SIM = sf.simulate(n_features=60, n_samples=50, inclusion=[0.2, 0.5, 0.3], snr=4, seed=2)
PRIORS = {
    "beta": sf.Prior(n_factors=5, inclusion=sf.Beta(1, 1)),
    "vector": sf.Prior(inclusion=[0.1, 0.1, 0.2, 0.5, 0.5]),
    "matrix": sf.Prior(inclusion=np.random.default_rng(0).uniform(0.1, 0.6, (60, 5))),
    "modules": sf.Prior(n_factors=5, inclusion=sf.Beta(1, 1), n_modules=3),
}


def fit(prior, **more):
    return sf.fit_vi(SIM.X, prior, n_trials=3, **more)


def draw(prior, **more):
    given = {"n_chains": 2, "n_warmup": 60, "n_draws": 60, "init": "varimax", "progress": False, **more}
    return sf.sample(SIM.X, prior, **given)


def assert_arranged(p) -> None:
    share, empty = p.variance_explained(by="factor"), p.empty
    assert np.all(np.diff(share[~empty]) <= 0)
    assert np.all(np.diff(empty.astype(int)) >= 0)
    assert np.all(p.loadings_mean.sum(axis=0) >= -1e-9)


@pytest.mark.parametrize("name", PRIORS)
def test_both_methods_put_the_strongest_first(name) -> None:
    vi, mc = fit(PRIORS[name]), draw(PRIORS[name], init="optima" if name == "beta" else "varimax")
    for p in (vi, mc):
        assert_arranged(p)
        assert 1 < np.count_nonzero(~p.empty) <= 5
    if name == "beta":  # the same factors at the same places, under the same signs
        solid = ~vi.empty
        assert not np.any(mc.empty[solid])  # so short a run may hold on to a further one
        for k in np.flatnonzero(solid):
            assert np.corrcoef(vi.loadings_mean[:, k], mc.loadings_mean[:, k])[0, 1] > 0.95


def back_to(prior: sf.Prior, given: sf.Prior) -> np.ndarray:
    """(n_factors,) an order of an arranged prior's factors under which it is the one that was given."""
    own, wanted = (np.lexsort(p.inclusion_matrix()) for p in (prior, given))
    order = np.empty(len(own), dtype=np.intp)
    order[wanted] = own
    return order


@pytest.mark.parametrize("name", ["vector", "matrix"])
@pytest.mark.parametrize("method", [fit, draw])
def test_unequal_priors_follow_their_factors(name, method) -> None:
    given = PRIORS[name]
    p = method(given)
    order = back_to(p.prior, given)
    np.testing.assert_array_equal(p.prior.inclusion[..., order], given.inclusion)
    if method is draw:
        return
    # Each column's log odds, less what the data say of it (3.1), are those of the prior it stands with.
    q = p.parameters
    sure = (q["eta"] > 1e-9) & (q["eta"] < 1 - 1e-9)
    eta, log_alpha = np.where(sure, q["eta"], 0.5), digamma(q["alpha_shape"]) - np.log(q["alpha_rate"])
    own = np.log(eta / (1 - eta)) - 0.5 * (log_alpha + np.log(q["s2"]) + q["mu"] ** 2 / q["s2"])
    wanted = np.broadcast_to(p.prior.inclusion_matrix(), own.shape)
    np.testing.assert_allclose(own[sure], np.log(wanted / (1 - wanted))[sure], atol=1e-2)


def test_equal_priors_stay_as_they_were() -> None:
    assert repr(fit(PRIORS["beta"]).prior) == repr(PRIORS["beta"])


def test_parameters_are_those_of_the_columns() -> None:
    for activations in ("independent", "joint"):
        p = fit(PRIORS["modules"], activations=activations)
        q = p.parameters
        np.testing.assert_allclose(q["eta"] * q["mu"], p.loadings_mean)
        np.testing.assert_allclose(q["f_mean"].T, p.activations_mean)
        np.testing.assert_allclose(q["alpha_shape"] / q["alpha_rate"], p.loading_precision_mean)
        np.testing.assert_allclose(np.einsum("ikm,im->ik", q["within"], q["member"]), q["eta"], atol=1e-8)
        variance = np.einsum("jkk->jk", q["f_var"]) if activations == "joint" else q["f_var"].T
        np.testing.assert_allclose(np.broadcast_to(np.sqrt(variance), p.activations_sd.shape), p.activations_sd)


def test_joint_covariances_turn_with_the_signs() -> None:
    """The next update of the activations leaves a converged q where it is, only if all its parts turned together."""
    from sparsefactor.kernels.contract import VIColumns, VIRows
    from sparsefactor.kernels.rows import RowVerbs
    from sparsefactor.vi.factors import taken

    rng = np.random.default_rng(0)
    K, G, N = 3, 5, 4
    root = rng.normal(size=(1, K, K))
    rows = VIRows(rng.normal(size=(G, K)), rng.random((G, K)), rng.random((G, K)), rng.random(G))
    none = np.zeros(0)
    columns = VIColumns(
        rng.normal(size=(K, N)), root @ root.swapaxes(1, 2), none, none, rng.random(K), rng.random(K), none, none
    )
    order, signs = np.array([2, 0, 1]), np.array([1, -1, -1])
    new_rows, new_columns = taken(RowVerbs(), rows, columns, order, signs)
    turn = np.eye(K)[order] * signs[:, None]
    np.testing.assert_allclose(new_columns.f_var[0], turn @ columns.f_var[0] @ turn.T)
    np.testing.assert_allclose(new_rows.mu @ new_columns.f_mean, rows.mu @ columns.f_mean)


@pytest.mark.parametrize("on_disk", [False, True])
def test_draws_follow(tmp_path, on_disk) -> None:
    p = draw(
        PRIORS["vector"], path=tmp_path / "run" if on_disk else None, **({"precision": "double"} if on_disk else {})
    )
    again = [p, sf.load(tmp_path / "run")] if on_disk else [p]
    for one in again:
        draws = one.draws["posterior"].to_dataset()
        np.testing.assert_allclose(draws["loadings"].mean(("chain", "draw")), one.loadings_mean, atol=1e-12)
        np.testing.assert_allclose(draws["activations"].mean(("chain", "draw")), one.activations_mean, atol=1e-12)
        np.testing.assert_allclose(draws["loading_precision"].mean(("chain", "draw")), one.loading_precision_mean)
        raw = one.unlabelled_draws()["posterior"].to_dataset()
        signal = np.einsum("cdik,cdjk->ji", raw["loadings"], raw["activations"]) / 120
        np.testing.assert_allclose(signal, one.signal_mean, atol=1e-8)
        # Each factor's label in the sampler has the prior that the arranged prior has for it.
        np.testing.assert_array_equal(PRIORS["vector"].inclusion[one.permutations[0, 0]], one.prior.inclusion)


def test_order_is_found_again_for_some_of_the_chains() -> None:
    mc = draw(PRIORS["vector"])
    turned = mc.keep_chains([1])
    assert_arranged(turned)
    draws = turned.draws["posterior"].to_dataset()
    np.testing.assert_allclose(draws["loadings"].mean(("chain", "draw")), turned.loadings_mean, atol=1e-12)


def test_rearranging_turns_everything_together() -> None:
    from dataclasses import replace

    from sparsefactor.storage import rearranged, reduced

    mc = draw(PRIORS["vector"])
    order, signs = np.array([1, 0, 4, 3, 2]), np.array([-1, 1, 1, -1, 1], dtype=np.int8)
    from sparsefactor.storage import relabelled_tree

    wide = (*mc.permutations.shape[:2], 1)
    mixed = replace(
        mc,
        prior=mc.prior.take(order),
        draws=relabelled_tree(mc.draws, np.tile(order, wide), np.tile(signs, wide)),
        permutations=mc.permutations[..., order],
        signs=mc.signs[..., order] * signs,
        fit_sums=mc.fit_sums.take(order),
    )
    mixed = replace(mixed, **reduced(mixed, np.full(2, 0.5)))
    again = rearranged(mixed)
    assert_arranged(again)
    for name in ("loadings_mean", "loadings_sd", "inclusion_prob", "activations_mean", "loading_precision_mean"):
        np.testing.assert_allclose(getattr(again, name), getattr(mc, name), atol=1e-12)
    np.testing.assert_array_equal(again.permutations, mc.permutations)
    np.testing.assert_array_equal(again.signs, mc.signs)
    np.testing.assert_array_equal(again.prior.inclusion, mc.prior.inclusion)
    np.testing.assert_array_equal(again.draws["posterior"]["loadings"], mc.draws["posterior"]["loadings"])


def test_arrangement_by_hand() -> None:
    size = np.array([0.0, 1.0, 4.0, 2.0])[None, None]
    sums = FitSums(
        total=np.full(2, 5.0), count=np.full(2, 3.0), residual=np.zeros((1, 1, 2)), cross=0 * size, size=size
    )
    order, signs = arrangement(sums, np.array([[-1.0, 1.0, -1.0, 0.5], [0.0, 1.0, 0.5, -0.5]]))
    np.testing.assert_array_equal(order, [2, 3, 1, 0])
    np.testing.assert_array_equal(signs, [-1, 1, 1, -1])


def test_chains_set_out_under_the_prior_that_was_given() -> None:
    """A start in the order of the result, strongest first, would put the dense factor under a sparse prior."""
    sim = sf.simulate(n_features=60, n_samples=50, inclusion=[0.95, 0.1, 0.1], snr=5, seed=4)
    data = as_data(sim.X, center=True)
    for dense in (0, 2):
        prior = sf.Prior(inclusion=np.where(np.arange(3) == dense, 0.9, 0.05))
        start = searched_start(build_engine(data, prior), prior, 0, 0, None)
        assert np.argmax((start.L != 0).sum(axis=0)) == dense
