"""Diagnostics: the numbers are ArviZ's, modes are told apart, and the verdict can go both ways."""

from __future__ import annotations

import warnings

import arviz_stats as az
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import sparsefactor as sf
from sparsefactor.diagnostics import find_modes, measure, summaries
from sparsefactor.diagnostics.measures import measures
from sparsefactor.posterior import Labels, MCMCPosterior
from sparsefactor.storage.moments import chain_moments, reduced

G, N, K, C, T = 9, 30, 2, 4, 200
PRIOR = sf.Prior(n_factors=K, inclusion=0.5)


def made(change=lambda variables: None, n_chains: int = C, n_draws: int = T) -> MCMCPosterior:
    """A posterior of independent draws around two factors; `change` spoils its variables in place."""
    rng = np.random.default_rng(3)
    L, F = rng.normal(size=(G, K)), rng.normal(size=(N, K))
    L[:3, 0] = 0.0  # loadings that are never active
    lead = (n_chains, n_draws)
    L = np.where(L != 0, L + 0.1 * rng.normal(size=(*lead, G, K)), 0.0)
    variables = {
        "loadings": L,
        "inclusion": L != 0,
        "activations": F + 0.1 * rng.normal(size=(*lead, N, K)),
        "noise_precision": rng.gamma(5, size=(*lead, G)),
        "loading_precision": rng.gamma(5, size=(*lead, K)),
        "lp": rng.normal(size=lead),
    }
    change(variables)
    dims = {
        "loadings": ("feature", "factor"),
        "inclusion": ("feature", "factor"),
        "activations": ("observation", "factor"),
        "noise_precision": ("feature",),
        "loading_precision": ("factor",),
    }
    coords = {"chain": np.arange(n_chains)}
    posterior = xr.Dataset({name: (("chain", "draw", *own), variables[name]) for name, own in dims.items()}, coords)
    stats = xr.Dataset({"lp": (("chain", "draw"), variables["lp"])})
    empty = MCMCPosterior(
        prior=PRIOR,
        labels=Labels(feature_names=np.arange(G), sample_names=np.arange(N), offset=np.zeros(G)),
        **{f"loadings_{what}": np.zeros((G, K)) for what in ("mean", "sd")},
        **{f"activations_{what}": np.zeros((N, K)) for what in ("mean", "sd")},
        inclusion_prob=np.zeros(0),
        noise_precision_mean=np.zeros(0),
        loading_precision_mean=np.zeros(0),
        inclusion_rate_mean=np.zeros(0),
        signal_mean=np.zeros(0),
        draws=xr.DataTree.from_dict({"posterior": posterior, "sample_stats": stats}),
        permutations=np.tile(np.arange(K), (*lead, 1)),
        signs=np.ones((*lead, K), dtype=np.int8),
    )
    return empty


@pytest.fixture(scope="module")
def good() -> MCMCPosterior:
    return made()


def test_good_chains_pass(good):
    d = good.diagnostics()
    assert d.ok
    assert "The draws can be used" in str(d.verdict)
    assert str(d) == str(d.verdict) == str(good.verdict)
    assert [mode.chains for mode in d.modes] == [(0, 1, 2, 3)]
    assert list(d.table.index) == [
        *("factor 1", "factor 2", "noise precision", "signal norm"),
        *("active loadings", "factors in use", "log joint"),
    ]
    moving = d.table.drop(index=["active loadings", "factors in use"])
    assert moving["r_hat"].between(0.99, 1.05).all()
    assert moving["ess_bulk"].gt(200).all()


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # ArviZ on constant parameters
def test_numbers_are_those_of_arviz(good):
    d = good.diagnostics()
    posterior = good.draws["posterior"].to_dataset()
    names = ["loadings", "activations", "noise_precision", "loading_precision"]
    wanted = {
        "r_hat": az.rhat(posterior[names]),
        "ess_bulk": az.ess(posterior[names], method="bulk"),
        "ess_tail": az.ess(posterior[names], method="tail", prob=(0.05, 0.95)),
        "mcse": az.mcse(posterior[names], method="mean"),
    }
    varies = (posterior["loadings"].std(("chain", "draw")) > 0).values
    for measured, theirs in wanted.items():
        for name in names:
            ours = d.parameters[name].sel(measure=measured).values
            keep = varies if name == "loadings" else np.ones(ours.shape, dtype=bool)
            np.testing.assert_allclose(ours[keep], theirs[name].values[keep], rtol=1e-12)
    worst = d.quantities.loc[("factor 2", "activations")]
    assert worst["r_hat"] == d.parameters["activations"].sel(measure="r_hat").values[:, 1].max()
    assert worst["n_parameters"] == N


def test_constant_parameters_take_no_part(good):
    d = good.diagnostics()
    assert np.isnan(d.parameters["loadings"].sel(measure="r_hat").values[:3, 0]).all()
    assert d.quantities.loc[("factor 1", "loadings"), "n_parameters"] == G - 3
    assert d.quantities.loc[("factor 1", "n_active"), "n_parameters"] == 0
    assert np.isnan(d.quantities.loc[("factor 1", "n_active"), "r_hat"])
    assert d.table.loc[:"signal norm", ["r_hat", "ess_bulk", "ess_tail"]].notna().all(axis=None)


def test_a_factor_that_is_dead_everywhere_gives_a_verdict():
    def kill(variables):
        variables["loadings"][..., 1] = 0.0
        variables["inclusion"][..., 1] = False
        rng = np.random.default_rng(0)
        variables["activations"][..., 1] = rng.normal(size=variables["activations"].shape[:-1])

    d = made(kill).diagnostics()
    assert d.ok, d.verdict  # its activations are draws of the prior, in which no two chains need agree
    assert len(d.modes) == 1


def test_a_chain_in_another_mode_is_named():
    def move(variables):
        rng = np.random.default_rng(9)
        variables["activations"][2, ..., 1] += 3 * rng.normal(size=N)
        variables["lp"][2] -= 40

    mc = made(move)
    d = mc.diagnostics()
    assert not d.ok
    assert [(mode.name, mode.chains) for mode in d.modes] == [("A", (0, 1, 3)), ("B", (2,))]
    assert d.modes[1].log_joint == pytest.approx(mc.draws["sample_stats"]["lp"].values[2].mean())
    assert d.verdict.sentence == "Not reliable yet: disagreement between chains, too few effective draws and 2 modes."
    assert any(reason.startswith("Factor 2: R-hat") for reason in d.verdict.reasons)
    assert not any(reason.startswith("Factor 1: R-hat") for reason in d.verdict.reasons)
    assert "A: chains 0, 1 and 3 (log joint 0.0); B: chain 2 (log joint -39.9)." in d.verdict.reasons[-1]
    assert "keep_chains([0, 1, 3])" in str(d.verdict)
    assert "run longer" in str(d.verdict)
    assert mc.keep_chains([0, 1, 3]).diagnostics().ok


def test_chains_that_differ_by_labels_and_signs_only_share_a_mode():
    def turn(variables):
        variables["activations"][1] = -variables["activations"][1][..., ::-1]

    assert len(find_modes(made(turn))) == 1


def test_a_factor_that_one_chain_misses_is_a_mode_of_its_own():
    def miss(variables):
        variables["activations"][3, ..., 0] = np.random.default_rng(0).normal(size=(T, N))

    assert [mode.chains for mode in find_modes(made(miss))] == [(0, 1, 2), (3,)]


def test_creeping_chains_are_told_to_run_longer():
    def creep(variables):
        walk = np.cumsum(np.random.default_rng(1).normal(size=(C, T)), axis=1)
        variables["loading_precision"][..., 0] = np.exp(walk / 20)

    d = made(creep).diagnostics()
    assert not d.ok
    assert "too few effective draws" in d.verdict.sentence
    assert "for factor 1, where 200 are needed" in str(d.verdict)
    assert d.table.loc["factor 1", "worst"] == "loading_precision"
    assert "run longer" in str(d.verdict)


def test_chains_stuck_at_different_values_are_not_overlooked():
    def stick(variables):
        variables["noise_precision"][..., 0] = np.arange(C)[:, None]

    d = made(stick).diagnostics()
    assert d.table.loc["noise precision", "r_hat"] > 100
    assert "Noise precision: R-hat" in str(d.verdict)


def spoil(name, where, value):
    def change(variables):
        variables[name][where] = value

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (spoil("noise_precision", (1, 7, 2), np.nan), "Chain 1: noise precision not finite at draw 7"),
        (spoil("noise_precision", (3, 0, 2), np.inf), "Chain 3: noise precision not finite at draw 0"),
        (spoil("loading_precision", (0, 9, 1), np.inf), "Chain 0: loading precision not finite at draw 9"),
        (spoil("loadings", (2, 3, 4, 1), np.nan), "Chain 2: loadings not finite at draw 3"),
        (spoil("activations", 2, np.nan), "Chain 2: activations not finite at draw 0"),
        (spoil("lp", 1, np.nan), "Chain 1: log joint not finite at draw 0"),
        (spoil("lp", (slice(None), slice(None)), -5.0), "Chain 0: log joint never changes"),
        (spoil("activations", (1, slice(None), 3), 0.5), "Chain 1: activations never changes at 2 of 60 places"),
    ],
)
def test_broken_draws_are_never_passed(change, said):
    d = made(change).diagnostics()
    assert not d.ok
    assert d.verdict.sentence.startswith("Not reliable yet: impossible draws")
    assert said in str(d.verdict)
    assert "sample again" in str(d.verdict)


def test_chains_that_never_move_are_never_passed():
    def freeze(variables):
        for name in variables:
            variables[name] = np.broadcast_to(variables[name][:1, :1], variables[name].shape)

    d = made(freeze).diagnostics()
    assert not d.ok
    assert "Chain 0: activations never changes" in str(d.verdict)
    assert "keep_chains" not in str(d.verdict)  # no chain is left to keep


def test_a_broken_chain_can_be_left_out():
    d = made(spoil("activations", 2, np.nan)).diagnostics()
    assert "keep_chains([0, 1, 3])" in str(d.verdict)
    assert made(spoil("activations", 2, np.nan)).keep_chains([0, 1, 3]).diagnostics().ok


def test_precisions_of_an_empty_factor_may_rest():
    def kill(variables):
        variables["loadings"][..., 1], variables["inclusion"][..., 1] = 0.0, False
        variables["loading_precision"][..., 1] = np.finfo(float).tiny
        variables["activations"][..., 1] = np.random.default_rng(0).normal(size=(C, T, N))

    d = made(kill).diagnostics()
    assert d.ok, d.verdict
    assert "Factor 2 is empty, or nearly so" in str(d.verdict)


def test_a_factor_that_no_chain_finds_is_judged_without_its_label():
    def surplus(variables):
        rng = np.random.default_rng(0)
        variables["activations"][..., 1] = rng.normal(size=(C, T, N))
        # Two of the chains keep their prior draws of an empty factor elsewhere: a matter of labels alone.
        variables["loadings"][..., 1], variables["inclusion"][..., 1] = 0.0, False
        variables["loading_precision"][:2, :, 1] *= 100.0

    mc = made(surplus)
    assert mc.diagnostics().table.loc["factor 2", "r_hat"] > 1.5
    assert mc.diagnostics().ok

    def grow(variables):
        surplus(variables)
        variables["inclusion"][2, ..., 1] = True  # one chain uses it: seen without labels

    d = made(grow).diagnostics()
    assert not d.ok
    assert "Active loadings: R-hat" in str(d.verdict)


@pytest.mark.parametrize(("n_chains", "n_draws"), [(4, 300), (3, 101), (2, 7), (2, 5), (4, 4), (1, 50)])
def test_measures_of_odd_parameters_are_those_of_arviz(n_chains, n_draws):
    from arviz_stats.base import array_stats

    rng = np.random.default_rng(0)
    x = rng.normal(size=(24, n_chains, n_draws))
    x[::4] = np.cumsum(x[::4], axis=2)
    x[1::4] *= rng.random(x[1::4].shape) < 0.3  # a spike of ties
    x[2::4] = rng.integers(0, 3, x[2::4].shape)
    x = x[np.ptp(x, axis=(1, 2)) > 0]
    axes = {"chain_axis": 1, "draw_axis": 2}
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        theirs = [
            array_stats.rhat(x, **axes) if n_chains > 1 else np.full(len(x), np.nan),
            array_stats.ess(x, **axes, method="bulk"),
            array_stats.ess(x, **axes, method="tail", prob=(0.05, 0.95)),
            array_stats.mcse(x, **axes, method="mean"),
            x.std(axis=(1, 2)),
        ]
    np.testing.assert_allclose(measures(x), theirs, rtol=1e-12)
    np.testing.assert_array_equal(measures(x, quick=True)[:2], measures(x)[:2])


def test_one_chain_is_not_enough():
    d = made(n_chains=1).diagnostics()
    assert not d.ok
    assert "R-hat needs two chains" in str(d.verdict)
    assert "n_chains=4" in str(d.verdict)
    assert d.table.loc[:"signal norm", "ess_bulk"].notna().all()
    assert not made(n_draws=3).diagnostics().ok


def test_summaries_are_what_their_names_say(good):
    posterior, found = good.draws["posterior"], summaries(good)
    L, F = posterior["loadings"].values, posterior["activations"].values
    np.testing.assert_allclose(found["loadings_norm"], (L**2).sum(2))
    np.testing.assert_allclose(found["activations_norm"], (F**2).sum(2))
    np.testing.assert_array_equal(found["n_active"], (L != 0).sum(2))
    np.testing.assert_array_equal(found["active_loadings"], (L != 0).sum((2, 3)))
    np.testing.assert_array_equal(found["factors_in_use"], (L != 0).any(2).sum(2))
    np.testing.assert_allclose(found["signal_norm"], ((F @ np.swapaxes(L, 2, 3)) ** 2).sum((2, 3)))


def test_passes_over_parts_change_nothing(good, monkeypatch):
    before = good.diagnostics()
    monkeypatch.setattr("sparsefactor.diagnostics.quantities.PASS_BYTES", C * T * K * 8 * 2)
    monkeypatch.setattr("sparsefactor.storage.lazy.BLOCK_BYTES", 1000)
    after = good.diagnostics()
    xr.testing.assert_allclose(after.parameters, before.parameters, rtol=1e-9)
    assert str(after.verdict) == str(before.verdict)


def test_moments_over_blocks_are_those_of_the_whole(good, monkeypatch):
    F = good.draws["posterior"]["activations"].values
    monkeypatch.setattr("sparsefactor.storage.lazy.BLOCK_BYTES", 7 * N * K * 8)
    shifted = good.draws.copy()
    shifted["posterior"]["activations"] = shifted["posterior"]["activations"] + np.arange(T)[None, :, None, None] + 1e6
    for draws, x in ((good.draws, F), (shifted, F + np.arange(T)[:, None, None] + 1e6)):
        mean, variance = chain_moments(draws, ["activations"])["activations"]
        np.testing.assert_allclose(mean, x.mean(1), rtol=1e-13)
        np.testing.assert_allclose(variance, x.var(1), rtol=1e-8)


def test_measure_keeps_names():
    array = xr.DataArray(
        np.random.default_rng(0).normal(size=(50, 2, 3)),
        dims=("draw", "chain", "factor"),
        coords={"factor": ["a", "b", "c"]},
    )
    assert list(measure(array)["factor"].values) == ["a", "b", "c"]


# ---- combining chains ---------------------------------------------------------------------------------------------


def test_keeping_chains_gives_their_moments(good):
    kept = good.keep_chains([2, 0])
    L = good.draws["posterior"]["loadings"].values[[2, 0]]
    F = good.draws["posterior"]["activations"].values[[2, 0]]
    np.testing.assert_allclose(kept.loadings_mean, L.mean((0, 1)), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(kept.activations_sd, F.std((0, 1)), rtol=1e-10)
    np.testing.assert_allclose(kept.signal_mean, np.einsum("cdnk,cdgk->ng", F, L) / (2 * T))
    assert kept.n_chains == 2
    assert kept.draws["posterior"].sizes["chain"] == kept.draws["sample_stats"].sizes["chain"] == 2
    np.testing.assert_array_equal(kept.draws["posterior"]["loadings"].values, L)


def test_combining_by_weight(good):
    weights = np.array([1.0, 0.0, 2.0, 1.0])
    mixed = good.combine(weights)
    F = good.draws["posterior"]["activations"].values
    share = np.repeat(weights / (4 * T), T).reshape(C, T)
    mean = np.einsum("cd,cdnk->nk", share, F)
    np.testing.assert_allclose(mixed.activations_mean, mean, rtol=1e-12)
    np.testing.assert_allclose(mixed.activations_sd**2, np.einsum("cd,cdnk->nk", share, (F - mean) ** 2), rtol=1e-9)
    np.testing.assert_array_equal(mixed.weights, weights / 4)
    dropped = good.combine([1, 0, 1, 1])
    np.testing.assert_allclose(dropped.signal_mean, good.keep_chains([0, 2, 3]).signal_mean, rtol=1e-12)
    assert not np.allclose(dropped.signal_mean, good.combine([1, 1, 1, 1]).signal_mean, rtol=1e-6)
    again = mixed.keep_chains([0, 2])
    np.testing.assert_allclose(again.weights, [1 / 3, 2 / 3])
    np.testing.assert_allclose(again.activations_mean, good.keep_chains([0, 2]).combine([1, 2]).activations_mean)


def test_bad_choices_are_refused(good):
    for chains in ([], [4], [-1], [0, 0]):
        with pytest.raises(ValueError, match=r"chains must be different numbers among \(0, 1, 2, 3\)"):
            good.keep_chains(chains)
    for chains in (1, "01", [0.5], None):
        with pytest.raises(TypeError, match="chains must be a list of whole numbers; got"):
            good.keep_chains(chains)
    for weights in ([1, 1], [0, 0, 0, 0], [1, 1, 1, -1], [1, 1, 1, np.nan], "ab", [1, "b", 1, 1], {}):
        with pytest.raises(ValueError, match="weights must be 4 numbers"):
            good.combine(weights)


def test_chains_keep_their_numbers(good):
    kept = good.keep_chains([2, 0])
    assert kept.chain_numbers == (2, 0)
    assert [mode.chains for mode in find_modes(kept)] == [(2, 0)]
    assert [mode.chains for mode in find_modes(good.keep_chains([1]))] == [(1,)]
    np.testing.assert_array_equal(kept.keep_chains([2]).loadings_mean, good.keep_chains([2]).loadings_mean)
    with pytest.raises(ValueError, match=r"different numbers among \(2, 0\)"):
        kept.keep_chains([1])


# ---- a real run ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> MCMCPosterior:
    sim = sf.simulate(n_features=30, n_samples=25, inclusion=[0.5, 0.5], snr=10, seed=1)
    path = tmp_path_factory.mktemp("run") / "run"
    return sf.sample(sim.X, PRIOR, n_chains=2, n_warmup=200, n_draws=300, path=path)


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # ArviZ on constant parameters
def test_arviz_works_on_the_draws_unchanged(run):
    for draws in (run.draws, run.unlabelled_draws()):
        frame = az.summary(draws)
        assert isinstance(frame, pd.DataFrame)
        assert len(frame) == K + K * K + 25 * K + 2 * 30 * K + 30
        assert az.rhat(draws)["loading_precision"].shape == (K,)
        assert az.ess(draws)["activations"].shape == (25, K)
    np.testing.assert_allclose(
        az.rhat(run.draws)["activations"].max(), run.diagnostics().quantities.xs("activations", level=1)["r_hat"].max()
    )


def test_a_stored_run_is_diagnosed(run):
    d = run.diagnostics()
    assert len(d.modes) == 1
    assert d.table.loc["log joint", "r_hat"] < 1.05
    reweighted = run.combine(np.ones(2))
    for name, value in reduced(run, np.full(2, 0.5)).items():
        np.testing.assert_array_equal(getattr(reweighted, name), value)
    np.testing.assert_allclose(reweighted.loadings_mean, run.loadings_mean, rtol=1e-12)
    np.testing.assert_allclose(reweighted.signal_mean, run.signal_mean, rtol=1e-5, atol=1e-7)  # draws are rounded
