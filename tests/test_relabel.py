"""Relabelling undoes permutations and signs; matching finds partners; nothing breaks on dead factors."""

from dataclasses import fields
from itertools import permutations, product
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsefactor.model import Prior
from sparsefactor.posterior import DIMS, Labels, MCMCPosterior
from sparsefactor.relabel import VARIANCE_FLOOR, Labelling, alike, match, relabel
from sparsefactor.relabel.labelling import _chunks
from sparsefactor.simulate import simulate

seeds = st.integers(0, 2**32 - 1)


def scrambled(rng, chains, draws, N, K, *, groups=None, spread=0.1):
    """Draws around one truth under random labels: (labelled draws, the same scrambled, the scrambling)."""
    truth = rng.normal(size=(N, K))
    clean = truth + spread * rng.normal(size=(chains, draws, N, K))
    groups = np.zeros(K) if groups is None else np.asarray(groups)
    order = np.tile(np.arange(K), (chains, draws, 1))
    for t in np.ndindex(chains, draws):
        for label in np.unique(groups):
            members = np.flatnonzero(groups == label)
            order[t][members] = rng.permutation(members)
    scrambling = Labelling(order, rng.choice(np.array([-1, 1], dtype=np.int8), size=(chains, draws, K)))
    return clean, scrambling.apply(clean), scrambling


def one_labelling(found, expected) -> bool:
    """Equal up to a single permutation and set of signs, the same for all draws."""
    K = found.shape[-1]
    a, b = found.reshape(-1, K), expected.reshape(-1, K)
    partner = np.abs(a.T @ b).argmax(axis=1)
    signs = np.sign(np.sum(a * b[:, partner], axis=0))
    return sorted(partner) == list(range(K)) and np.array_equal(a, signs * b[:, partner])


@settings(max_examples=50, deadline=None)
@given(seed=seeds, chains=st.integers(1, 3), draws=st.integers(2, 12), K=st.integers(1, 6))
def test_random_scrambling_is_undone_exactly(seed, chains, draws, K) -> None:
    clean, given_draws, _ = scrambled(np.random.default_rng(seed), chains, draws, 25, K)
    found = relabel(given_draws)
    assert found.converged
    assert one_labelling(found.apply(given_draws), clean)
    assert found.unit_norm == (chains > 1)


def test_the_check_itself_can_fail() -> None:
    clean, given_draws, _ = scrambled(np.random.default_rng(0), 1, 10, 25, 4)
    assert not one_labelling(given_draws, clean)


@settings(deadline=None)
@given(seed=seeds)
def test_the_inverse_undoes_the_labelling(seed) -> None:
    rng = np.random.default_rng(seed)
    clean, given_draws, scrambling = scrambled(rng, 2, 5, 8, 4)
    np.testing.assert_array_equal(scrambling.invert().apply(given_draws), clean)
    counts = rng.integers(0, 9, size=(2, 5, 4, 3))
    there = scrambling.apply(counts, signed=False, axis=2)
    np.testing.assert_array_equal(scrambling.invert().apply(there, signed=False, axis=2), counts)


def test_apply_by_hand() -> None:
    labelling = Labelling(np.array([[1, 0, 2]]), np.array([[1, -1, -1]], dtype=np.int8))
    np.testing.assert_array_equal(labelling.apply([[10.0, 20.0, 30.0]]), [[20.0, -10.0, -30.0]])
    np.testing.assert_array_equal(labelling.apply([[10, 20, 30]], signed=False), [[20, 10, 30]])
    on_the_first = labelling.apply([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]], axis=1)
    np.testing.assert_array_equal(on_the_first, [[[3.0, 4.0], [-1.0, -2.0], [-5.0, -6.0]]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8])
def test_apply_keeps_the_dtype(dtype) -> None:
    labelling = Labelling(np.array([[1, 0]]), np.array([[1, -1]], dtype=np.int8))
    assert labelling.apply(np.ones((1, 2), dtype=dtype)).dtype == dtype


@pytest.mark.parametrize(
    ("shape", "axis"), [((1, 4, 3), -1), ((2, 2), -1), ((1, 3, 4), 1), ((1, 2), 0), ((2,), 0), ((1, 2), 5)]
)
def test_apply_refuses_other_shapes(shape, axis) -> None:
    labelling = Labelling(np.array([[1, 0]]), np.array([[1, -1]], dtype=np.int8))
    with pytest.raises(ValueError, match=r"must begin with the draws' axes \(1,\) and have 2 factors"):
        labelling.apply(np.ones(shape), axis=axis)


def test_apply_refuses_signs_for_what_has_none() -> None:
    labelling = Labelling(np.array([[1, 0]]), np.array([[1, -1]], dtype=np.int8))
    with pytest.raises(ValueError, match=r"dtype bool have no sign to change.*signed=False"):
        labelling.apply(np.ones((1, 2), dtype=bool))


# ---- the paper's loss ---------------------------------------------------------------------------------------------


def brute_force(F, mean, sd):
    """The least loss of one draw (N, K) over all permutations and signs, straight from the definition."""
    K = F.shape[1]
    return min(
        -sum(
            -0.5 * np.log(2 * np.pi * sd[j, k] ** 2) - 0.5 * ((signs[k] * F[j, order[k]] - mean[j, k]) / sd[j, k]) ** 2
            for k in range(K)
            for j in range(len(F))
        )
        for order in permutations(range(K))
        for signs in product((-1, 1), repeat=K)
    )


@pytest.mark.parametrize("unit_norm", [False, True])
def test_each_draw_has_its_best_labels_and_cost_is_the_risk(unit_norm) -> None:
    rng = np.random.default_rng(2)
    # So wide a spread that labels are doubtful, and steps 1 and 2 take several rounds.
    _, draws, _ = scrambled(rng, 1, 40, 6, 3, spread=1.0)
    found = relabel(draws[0], unit_norm=unit_norm)
    assert found.converged
    F = draws[0] / np.linalg.norm(draws[0], axis=1, keepdims=True) if unit_norm else draws[0]
    x = found.apply(F)
    np.testing.assert_allclose(found.mean, x.mean(axis=0))
    np.testing.assert_allclose(found.sd, x.std(axis=0))
    least = sum(brute_force(draw, found.mean, found.sd) for draw in F)
    assert found.cost[-1] == pytest.approx(least, rel=1e-9)


@settings(deadline=None)
@given(seed=seeds, K=st.integers(2, 5))
def test_the_risk_never_rises(seed, K) -> None:
    _, draws, _ = scrambled(np.random.default_rng(seed), 2, 15, 5, K, spread=1.0)
    found = relabel(draws)
    assert found.n_iter == len(found.cost)
    assert np.all(np.diff(found.cost) <= 1e-8 * np.abs(found.cost[:-1]))


def risk(F, labelling, unit_norm) -> float:
    """The Monte Carlo risk of a labelling at its own means and variances, written anew."""
    norm = np.linalg.norm(F, axis=1, keepdims=True)
    x = F / np.where((norm > 0) & unit_norm, norm, 1.0)
    floor = VARIANCE_FLOOR * np.mean(x**2)
    x = labelling.apply(x)
    variance = np.maximum(x.var(axis=0), floor)
    return 0.5 * float(np.sum((x - x.mean(axis=0)) ** 2 / variance + np.log(2 * np.pi * variance)))


@pytest.mark.parametrize("unit_norm", [False, True])
def test_no_labelling_beats_the_one_found_with_few_samples_and_an_empty_factor(unit_norm) -> None:
    """Few draws have several fixed points; from one reference alone a worse one is found in some of these cases."""
    rng = np.random.default_rng(5)
    for _ in range(60):
        K = int(rng.integers(3, 7))
        clean = rng.normal(size=(5, K)) + 0.2 * rng.normal(size=(10, 5, K))
        clean[:, :, 0] = rng.normal(size=(10, 5))  # an empty factor's activations are drawn from their prior
        order = np.array([rng.permutation(K) for _ in range(10)])
        scrambling = Labelling(order, rng.choice(np.array([-1, 1], dtype=np.int8), size=(10, K)))
        F = scrambling.apply(clean)
        found, truth = risk(F, relabel(F, unit_norm=unit_norm), unit_norm), risk(F, scrambling.invert(), unit_norm)
        assert found <= truth + 1e-6 * abs(truth)


def test_chunks_do_not_change_the_result(monkeypatch) -> None:
    _, draws, _ = scrambled(np.random.default_rng(2), 2, 21, 6, 3, spread=1.0)
    whole = relabel(draws)
    flat = draws.reshape(-1, *draws.shape[-2:])
    assert len(list(_chunks(flat))) == 1
    monkeypatch.setitem(_chunks.__globals__, "CHUNK_ENTRIES", 100)
    assert len(list(_chunks(flat))) > 3
    parts = relabel(draws)
    np.testing.assert_array_equal(parts.permutations, whole.permutations)
    np.testing.assert_array_equal(parts.signs, whole.signs)
    np.testing.assert_allclose(parts.cost, whole.cost)


def test_of_many_draws_some_are_labelled_first(monkeypatch) -> None:
    """Each draw still ends with its best labels, and means and spreads are those of all draws."""
    _, draws, _ = scrambled(np.random.default_rng(2), 1, 260, 6, 3, spread=0.7)
    rounds: list[int] = []
    step = _chunks.__globals__["_step_2"]
    monkeypatch.setitem(_chunks.__globals__, "_step_2", lambda F, *rest: (rounds.append(len(F)), step(F, *rest))[1])
    monkeypatch.setitem(_chunks.__globals__, "MANY_DRAWS", 50)
    quick = relabel(draws[0])
    assert {44 + 1, 260} == set(rounds)
    monkeypatch.setitem(_chunks.__globals__, "SETTLED", 0.0)  # until nothing changes
    found = relabel(draws[0])
    assert found.converged
    assert quick.converged
    assert quick.n_iter < found.n_iter
    assert quick.cost[-1] < found.cost[-1] + 0.05 * 260, "a few hundredths of a nat a draw"
    x = found.apply(draws[0])
    np.testing.assert_allclose(found.mean, x.mean(axis=0))
    np.testing.assert_allclose(found.sd, x.std(axis=0))
    least = sum(brute_force(draw, found.mean, found.sd) for draw in draws[0])
    assert found.cost[-1] == pytest.approx(least, rel=1e-9)


def test_stopping_early_is_said(caplog) -> None:
    _, draws, _ = scrambled(np.random.default_rng(2), 1, 40, 6, 3, spread=1.0)
    found = relabel(draws, max_iter=1)
    assert not found.converged
    assert found.n_iter == 1
    assert "raise max_iter" in caplog.text
    np.testing.assert_allclose(found.mean, found.apply(draws).mean(axis=(0, 1)))


def test_scale_matters_only_without_unit_norm() -> None:
    rng = np.random.default_rng(0)
    _, draws, _ = scrambled(rng, 2, 10, 20, 3)
    scales = rng.uniform(0.1, 10, size=(2, 10, 1, 3))
    np.testing.assert_array_equal(relabel(draws).permutations, relabel(draws * scales).permutations)
    assert not np.allclose(relabel(draws, unit_norm=False).mean, relabel(draws * scales, unit_norm=False).mean)


# ---- who may swap -------------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(seed=seeds)
def test_only_factors_of_one_prior_swap(seed) -> None:
    prior = Prior(inclusion=[0.1, 0.9, 0.1, 0.9, 0.5])
    groups = prior.factor_groups()
    clean, draws, _ = scrambled(np.random.default_rng(seed), 2, 8, 25, 5, groups=groups)
    found = relabel(draws, prior=prior)
    np.testing.assert_array_equal(groups[found.permutations], np.broadcast_to(groups, found.permutations.shape))
    assert one_labelling(found.apply(draws), clean)


def test_groups_hold_even_where_swapping_would_be_better() -> None:
    clean, draws, _ = scrambled(np.random.default_rng(0), 1, 20, 25, 3)
    found = relabel(draws, groups=["a", "b", "c"])
    np.testing.assert_array_equal(found.permutations, np.broadcast_to([0, 1, 2], (1, 20, 3)))
    assert not one_labelling(found.apply(draws), clean)


# ---- corners ------------------------------------------------------------------------------------------------------


def test_dead_factors_give_no_nan() -> None:
    clean, _, scrambling = scrambled(np.random.default_rng(1), 2, 10, 20, 4)
    clean[..., 2:] = 0.0
    for unit_norm in (False, True):
        found = relabel(scrambling.apply(clean), unit_norm=unit_norm)
        assert found.converged
        assert np.isfinite(found.mean).all()
        assert np.isfinite(found.cost).all()
        x = found.apply(scrambling.apply(clean))
        alive = np.flatnonzero(np.any(x[0, 0] != 0, axis=0))
        assert len(alive) == 2
        assert not np.any(np.delete(x, alive, axis=-1))


def test_all_zero_draws() -> None:
    found = relabel(np.zeros((5, 4, 3)))
    assert found.converged
    assert np.isfinite(found.cost).all()
    np.testing.assert_array_equal(found.mean, 0)


def test_identical_draws_meet_the_variance_floor() -> None:
    F = np.random.default_rng(0).normal(size=(7, 2))
    found = relabel(np.stack([F, F[:, ::-1], -F]))
    np.testing.assert_allclose(found.sd, np.sqrt(VARIANCE_FLOOR * np.mean(F**2)))
    x = found.apply(np.stack([F, F[:, ::-1], -F]))
    np.testing.assert_array_equal(x[0], x[1])
    np.testing.assert_array_equal(x[0], x[2])


@pytest.mark.parametrize(
    ("draws", "options", "message"),
    [
        (np.ones((4, 3)), {}, r"activations must be \(draw, n_samples, n_factors\) or.*got shape \(4, 3\)"),
        (np.ones((0, 4, 3)), {}, r"none empty; got shape \(0, 4, 3\)"),
        (np.full((2, 4, 3), np.nan), {}, "activations must be finite"),
        (np.ones((2, 4, 3)), {"groups": [0, 1]}, r"one label per factor; got shape \(2,\) and 3 factors"),
        (np.ones((2, 4, 3)), {"prior": Prior(n_factors=4)}, "one label per factor"),
        (np.ones((2, 4, 3)), {"max_iter": 0}, "max_iter must be a whole number of at least 1; got 0"),
        (xr.DataTree.from_dict({"prior": xr.Dataset()}), {}, r"group 'posterior'.*got groups \['prior'\]"),
    ],
)
def test_refusals(draws, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        relabel(draws, **options)


# ---- whole posteriors ---------------------------------------------------------------------------------------------


def tree_of_draws(rng, groups) -> tuple[dict, xr.DataTree]:
    """Variables of clean draws by name, and the tree of the same under random labels."""
    C, T, G, N, K = 2, 6, 10, 25, len(groups)
    activations, _, scrambling = scrambled(rng, C, T, N, K, groups=groups)
    clean = {
        "loadings": rng.normal(size=(C, T, G, K)),
        "inclusion": rng.random((C, T, G, K)) < 0.5,
        "activations": activations,
        "loading_precision": rng.random((C, T, K)),
        "inclusion_rate": rng.random((C, T, K)),
    }
    variables = {
        name: (("chain", "draw", *DIMS[name]), scrambling.apply(v, signed=name in ("loadings", "activations")))
        for name, v in clean.items()
    }
    variables["noise_precision"] = (("chain", "draw", "feature"), rng.random((C, T, G)))
    coords = {"feature": [f"g{i}" for i in range(G)]}
    tree = xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset(variables, coords=coords, attrs={"inference": "mcmc"}),
            "sample_stats": xr.Dataset({"lp": (("chain", "draw"), rng.random((C, T)))}),
        }
    )
    return clean, tree


def posterior_of(prior, tree) -> MCMCPosterior:
    unused = {f.name for f in fields(MCMCPosterior)} - {"prior", "labels", "draws"}
    labels = Labels(feature_names=np.arange(10), sample_names=np.arange(25), offset=np.zeros(10))
    return MCMCPosterior(prior=prior, labels=labels, draws=tree, **dict.fromkeys(unused, np.zeros(0)))


def test_a_posterior_knows_which_factors_may_swap() -> None:
    _, tree = tree_of_draws(np.random.default_rng(3), [0, 0, 0])
    _, free = relabel(tree)
    _, bound = relabel(posterior_of(Prior(inclusion=[0.1, 0.5, 0.9]), tree))
    assert np.any(free.permutations != np.arange(3))
    assert np.all(bound.permutations == np.arange(3))


@pytest.mark.parametrize("kind", ["tree", "posterior"])
def test_a_tree_is_relabelled_whole(kind) -> None:
    prior = Prior(inclusion=[0.1, 0.9, 0.1])
    clean, tree = tree_of_draws(np.random.default_rng(3), prior.factor_groups())
    before = tree.copy(deep=True)
    if kind == "tree":
        new, found = relabel(tree, prior=prior)
    else:
        new, found = relabel(posterior_of(prior, tree))
    # One more relabelling, the same for all draws, leads from the result to the clean draws.
    last = found.apply(tree["posterior"]["activations"].values)
    np.testing.assert_array_equal(new["posterior"]["activations"], last)
    flat, target = last.reshape(-1, 3), clean["activations"].reshape(-1, 3)
    partner = np.abs(flat.T @ target).argmax(axis=1)
    signs = np.sign(np.sum(flat * target[:, partner], axis=0))
    for name, values in clean.items():
        signed = name in ("loadings", "activations")
        expected = values[..., partner] * signs if signed else values[..., partner]
        np.testing.assert_array_equal(new["posterior"][name], expected)
        assert new["posterior"][name].dtype == values.dtype
        assert new["posterior"][name].dims == before["posterior"][name].dims
    xr.testing.assert_identical(new["posterior"]["noise_precision"], before["posterior"]["noise_precision"])
    xr.testing.assert_identical(new["sample_stats"].to_dataset(), before["sample_stats"].to_dataset())
    assert new["posterior"].attrs == {"inference": "mcmc"}
    xr.testing.assert_identical(tree, before)


# ---- matching -----------------------------------------------------------------------------------------------------


def side(loadings, activations) -> SimpleNamespace:
    return SimpleNamespace(loadings_mean=loadings, activations_mean=activations)


@settings(deadline=None)
@given(seed=seeds, K=st.integers(1, 6))
def test_match_finds_a_permutation_and_signs(seed, K) -> None:
    rng = np.random.default_rng(seed)
    sim = simulate(n_features=40, n_samples=30, inclusion=1.0, n_factors=K, snr=1, seed=seed)
    order, signs = rng.permutation(K), rng.choice([-1, 1], size=K)
    matching = match(side(sim.loadings[:, order] * signs, 3 * sim.activations[:, order] * signs), sim)
    np.testing.assert_array_equal(order[matching.permutation], np.arange(K))
    np.testing.assert_array_equal(matching.apply(sim.loadings[:, order] * signs), sim.loadings)
    np.testing.assert_array_equal(matching.apply(sim.inclusion[:, order], signed=False), sim.inclusion)
    np.testing.assert_allclose(matching.similarity, 1)
    assert matching.unmatched.size == matching.missing.size == 0


def test_match_with_fewer_and_with_more_factors() -> None:
    sim = simulate(n_features=40, n_samples=30, inclusion=1.0, n_factors=4, snr=1, seed=0)
    fewer = match(side(-sim.loadings[:, [3, 1]], -sim.activations[:, [3, 1]]), sim)
    np.testing.assert_array_equal(fewer.permutation, [-1, 1, -1, 0])
    np.testing.assert_array_equal(fewer.missing, [0, 2])
    np.testing.assert_array_equal(fewer.similarity[[0, 2]], 0)
    expected = sim.loadings * [0, 1, 0, 1]
    np.testing.assert_array_equal(fewer.apply(-sim.loadings[:, [3, 1]]), expected)
    truth = SimpleNamespace(loadings=sim.loadings[:, [3, 1]], activations=sim.activations[:, [3, 1]])
    more = match(sim, truth)
    np.testing.assert_array_equal(more.permutation, [3, 1])
    np.testing.assert_array_equal(more.unmatched, [0, 2])


def test_loadings_decide_where_activations_cannot() -> None:
    sim = simulate(n_features=40, n_samples=30, inclusion=1.0, n_factors=2, snr=1, seed=0)
    same = np.repeat(sim.activations[:, :1], 2, axis=1)
    reference = SimpleNamespace(loadings=sim.loadings, activations=same)
    assert list(match(side(sim.loadings[:, ::-1], same), reference).permutation) == [1, 0]


def test_one_sign_must_serve_both() -> None:
    rng = np.random.default_rng(0)
    L, F = rng.normal(size=(50, 1)), rng.normal(size=(50, 1))
    contrary = match(side(L, -F), SimpleNamespace(loadings=L, activations=F))
    assert contrary.similarity[0] == pytest.approx(0, abs=1e-12)


def test_match_survives_a_dead_factor() -> None:
    sim = simulate(n_features=40, n_samples=30, inclusion=1.0, n_factors=3, snr=1, seed=0)
    dead = side(sim.loadings * [0, 1, 1], sim.activations * [0, 1, 1])
    np.testing.assert_array_equal(match(dead, sim).permutation, [0, 1, 2])
    assert match(dead, sim).similarity[0] == 0


def test_match_refusals() -> None:
    sim = simulate(n_features=5, n_samples=4, inclusion=1.0, n_factors=2, snr=1)
    with pytest.raises(ValueError, match="same features and samples; got 4 and 5 features, 4 and 4 samples"):
        match(side(sim.loadings[1:], sim.activations), sim)
    with pytest.raises(TypeError, match=r"must have loadings and activations.*got a dict"):
        match({}, sim)


def test_factors_that_look_alike_are_paired_whatever_their_order_and_sign() -> None:
    A = np.random.default_rng(0).standard_normal((30, 4))
    B = np.column_stack([-3.0 * A[:, 2], A[:, 0] + 0.1 * A[:, 1], np.zeros(30), 0.5 * A[:, 3], A[:, 1]])
    cosine, a, b = alike(A, B)
    assert dict(zip(a.tolist(), b.tolist(), strict=True)) == {0: 1, 1: 4, 2: 0, 3: 3}
    np.testing.assert_allclose(cosine[[2, 1, 3], [0, 4, 3]], 1.0)
    np.testing.assert_array_equal(cosine[:, 2], 0.0)
