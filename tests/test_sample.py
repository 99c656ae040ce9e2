"""sample as its user sees it."""

from __future__ import annotations

import sys
import tracemalloc
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import sparsefactor as sf
from sparsefactor.engine.blocks import Blocks
from sparsefactor.mcmc.finish import label
from sparsefactor.mcmc.progress import Display
from sparsefactor.signals import add_signal
from sparsefactor.storage.draws import MemoryDraws
from sparsefactor.vi.fit import search_on

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
    assert draws["inclusion"].dtype == np.int8
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


def test_chains_from_one_start_have_their_own_randomness(easy):
    start = sf.Start("mine", easy.loadings, np.ascontiguousarray(easy.activations.T))
    L = sf.sample(easy.X, PRIOR, **SHORT, init=start).unlabelled_draws()["posterior"]["loadings"].values
    assert not np.array_equal(L[0], L[1])


def test_chains_start_at_a_posterior(easy):
    """At the means of a fit, without a search of their own: the same chains as from a Start with these."""
    vi = sf.fit_vi(easy.X, PRIOR, n_trials=2, seed=0)
    mc = sf.sample(easy.X, vi.prior, init=vi, **SHORT)
    same = sf.sample(easy.X, vi.prior, init=sf.Start("vi", vi.loadings_mean, vi.activations_mean.T), **SHORT)
    np.testing.assert_array_equal(mc.loadings_mean, same.loadings_mean)
    assert np.all(sf.match(mc, vi).similarity > 0.95)
    with pytest.raises(ValueError, match=r"a Start must have L of shape"):
        sf.sample(easy.X[:-1], vi.prior, init=vi, **SHORT)


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


def own_draws(easy, monkeypatch, **options) -> tuple[sf.MCMCPosterior, dict[str, np.ndarray]]:
    """A posterior, and the draws as each chain handed them over."""
    made: dict[str, np.ndarray] = {}
    keep = MemoryDraws.keep

    def keeping(self, chain, t, values) -> None:
        for name in self.arrays:
            made.setdefault(name, np.empty_like(self.arrays[name]))[chain, t] = values[name]
        keep(self, chain, t, values)

    monkeypatch.setattr(MemoryDraws, "keep", keeping)
    return sf.sample(easy.X, PRIOR, **{**SHORT, "init": "random", "seed": 2, **options}), made


def test_the_samplers_own_labels_can_be_recovered(easy, monkeypatch):
    mc, made = own_draws(easy, monkeypatch)
    assert mc.permutations.shape == mc.signs.shape == (2, 20, 2)
    assert np.any(mc.permutations != np.arange(2)) or np.any(mc.signs < 0)  # there is something to undo
    back = mc.unlabelled_draws()["posterior"]
    for name, values in made.items():
        if name != "lp":
            np.testing.assert_array_equal(back[name].values, values)
    np.testing.assert_array_equal(mc.draws["sample_stats"]["lp"].values, made["lp"])
    assert not np.array_equal(mc.draws["posterior"]["loadings"].values, made["loadings"])
    # The labelling that relabel finds, but for one order and one set of signs for all draws.
    _, found = sf.relabel(mc.unlabelled_draws(), prior=PRIOR)
    order = [list(found.permutations[0, 0]).index(k) for k in mc.permutations[0, 0]]
    turned = mc.signs[0, 0] * found.signs[0, 0, order]
    np.testing.assert_array_equal(found.permutations[..., order], mc.permutations)
    np.testing.assert_array_equal(found.signs[..., order] * turned, mc.signs)


@pytest.mark.parametrize("n_chains", [1, 3])
@pytest.mark.parametrize("held", [True, False])
def test_streaming_finds_what_relabel_finds(easy, monkeypatch, n_chains, held):
    mc = sf.sample(easy.X, PRIOR, **{**SHORT, "n_chains": n_chains}, init="random")
    own = mc.unlabelled_draws()
    wanted = sf.relabel(own["posterior"]["activations"].values, prior=PRIOR)
    monkeypatch.setattr("sparsefactor.mcmc.finish.HELD_BYTES", 1e9 if held else 0)
    monkeypatch.setattr(sys.modules["sparsefactor.relabel.labelling"], "CHUNK_ENTRIES", 7 * 25 * 2)
    found = label(own, PRIOR)
    np.testing.assert_array_equal(found.permutations, wanted.permutations)
    np.testing.assert_array_equal(found.signs, wanted.signs)
    np.testing.assert_allclose(found.mean, wanted.mean, rtol=1e-12)
    assert found.converged
    assert mc.draws["posterior"].attrs["relabelling_converged"] == 1


def test_moments_are_those_of_the_draws(easy):
    mc = sf.sample(easy.X, PRIOR, **SHORT)
    draws = mc.draws["posterior"]
    for name in ("loadings", "activations"):
        np.testing.assert_allclose(getattr(mc, f"{name}_mean"), draws[name].mean(("chain", "draw")), atol=1e-14)
        np.testing.assert_allclose(getattr(mc, f"{name}_sd"), draws[name].std(("chain", "draw")), atol=1e-14)
    np.testing.assert_allclose(mc.inclusion_prob, draws["inclusion"].mean(("chain", "draw")), atol=1e-14)
    np.testing.assert_allclose(mc.noise_precision_mean, draws["noise_precision"].mean(("chain", "draw")))


# ---- chains side by side ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_number_of_jobs_changes_no_bit(missing):
    sim = sf.simulate(n_features=300, n_samples=40, inclusion=[0.2] * 5, snr=5, seed=3)
    X = np.where(np.random.default_rng(0).random(sim.X.shape) < missing, np.nan, sim.X)
    prior = sf.Prior(n_factors=5, inclusion=0.2)
    runs = [sf.sample(X, prior, n_chains=3, n_warmup=10, n_draws=20, n_jobs=jobs) for jobs in (1, 2, 3, None)]
    for run in runs[1:]:
        assert same(run, runs[0])
        np.testing.assert_array_equal(run.signal_mean, runs[0].signal_mean)


def test_nothing_is_printed_where_there_is_no_terminal(easy, capfd):
    sf.sample(easy.X, PRIOR, **SHORT)
    assert capfd.readouterr() == ("", "")


def test_rates_and_times_left(monkeypatch):
    seconds = iter([0.0, 0.0, 90.0, 100.0, 110.0])
    monkeypatch.setattr("sparsefactor.mcmc.progress.time.monotonic", lambda: next(seconds))
    chain = SimpleNamespace(number=0, sweep=500, plan=SimpleNamespace(n_sweeps=4500), kept=0, active=3, log_joint=-1.0)
    display = Display([chain])
    assert str(display.report(chain)) == "chain 0: 500 of 4500 sweeps, 3 active, log joint -1.0"
    chain.sweep = 502  # whose time may be that of compilation
    assert "left" not in str(display.report(chain))
    chain.sweep = 1502
    report = display.report(chain)
    assert (report.sweeps_per_second, report.seconds_left) == (100.0, 29.98)
    assert str(report) == "chain 0: 1502 of 4500 sweeps, 100 sweeps/s, 0:30 left, 3 active, log joint -1.0"
    chain.log_joint = float("nan")
    assert str(display.report(chain)).endswith("waiting for its first sweep")


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
        ({"n_jobs": 0}, "n_jobs must be a whole number of at least 1; got 0"),
        ({"precision": "half"}, "precision must be one of"),
        ({"checkpoint_seconds": -1}, "checkpoint_seconds must be zero or positive"),
    ],
)
def test_bad_settings_are_refused(easy, options, message):
    with pytest.raises(ValueError, match=message):
        sf.sample(easy.X, PRIOR, **{**SHORT, **options})


def test_a_prior_moves_and_starts_of_other_kinds_are_refused(easy):
    with pytest.raises(TypeError, match="prior must be a Prior; got"):
        sf.sample(easy.X, {"n_factors": 2}, **SHORT)
    for moves in (None, "scale", 3):
        with pytest.raises(TypeError, match="moves must be a list of names among"):
            sf.sample(easy.X, PRIOR, **SHORT, moves=moves)
    with pytest.raises(ValueError, match="init must be one of"):
        sf.sample(easy.X, PRIOR, **SHORT, init=np.zeros(3))
    L, F = easy.loadings, np.ascontiguousarray(easy.activations.T)
    with pytest.raises(ValueError, match="a Start must have L of shape"):
        sf.sample(easy.X, PRIOR, **SHORT, init=sf.Start("mine", L.T, F))
    with pytest.raises(ValueError, match="a Start must be finite"):
        sf.sample(easy.X, PRIOR, **SHORT, init=sf.Start("mine", L, np.full_like(F, np.nan)))


@pytest.mark.parametrize("init", ["auto", "optima"])
@pytest.mark.parametrize("modules", [1, 2])
def test_starts_and_chains_share_one_engine(easy, monkeypatch, init, modules):
    built, blocks = [], Blocks.__init__

    def counted(self, *args):
        built.append(self)
        blocks(self, *args)

    monkeypatch.setattr(Blocks, "__init__", counted)
    prior = sf.Prior(n_factors=2, inclusion=sf.Beta(1, 1), n_modules=modules)
    sf.sample(easy.X, prior, **SHORT, init=init)
    assert len(built) == 1


def test_moves_that_the_engine_has_not_are_refused_or_left_out(easy):
    own = replace(PRIOR, factor_correlation="none")
    by_sample = replace(own, noise="sample")
    with pytest.raises(ValueError, match=r"for 'cpu' .*; got 'noise'; leave it out"):
        sf.sample(easy.X, by_sample, **SHORT, moves=["scale", "noise"])
    made, whole = (sf.sample(easy.X, prior, **SHORT).record["settings"]["moves"] for prior in (by_sample, own))
    assert whole == [*made, "noise"]
    with pytest.raises(ValueError, match=r"for 'cpu' .*; got 'scale'; leave it out"):
        sf.sample(easy.X, PRIOR, **SHORT, moves=["scale"])
    X = easy.X.copy()
    X[0, 0] = np.nan
    assert sf.sample(X, own, **SHORT).record["settings"]["moves"] == whole


def test_numpy_numbers_are_numbers(easy, tmp_path):
    plain = sf.sample(easy.X, PRIOR, **SHORT, seed=1, path=tmp_path / "a", precision="double")
    own = {name: np.int64(value) for name, value in SHORT.items()}
    for seconds in (np.float32(3), np.int64(3)):
        path = tmp_path / f"b{seconds.dtype}"
        options = {**own, "seed": np.int64(1), "thin": np.int32(1), "n_jobs": np.int8(1), "precision": "double"}
        assert same(sf.sample(easy.X, PRIOR, **options, path=path, checkpoint_seconds=seconds), plain)
        assert same(sf.sample(easy.X, PRIOR, **SHORT, seed=1, path=path, precision="double"), plain)


@pytest.mark.parametrize("init", ["auto", "optima"])
def test_an_interrupt_of_the_starts_is_an_interrupt(easy, monkeypatch, init):
    def half_done(*args, **more):
        return search_on(*args, **more)._replace(status=sf.posterior.Status.INTERRUPTED)

    monkeypatch.setattr(sys.modules["sparsefactor.mcmc.dispersed"], "search_on", half_done)
    with pytest.raises(KeyboardInterrupt):
        sf.sample(easy.X, PRIOR, **SHORT, init=init)


def test_all_of_sample_holds_blas_at_one_thread(easy, monkeypatch):
    from sparsefactor.engine.blas import _limit as blas_limit

    module = sys.modules["sparsefactor.mcmc.stretches"]
    inside = []

    def watched(function):
        def watching(*args):
            inside.append(blas_limit.inside)
            return function(*args)

        return watching

    for name in ("chain_starts", "posterior", "started"):
        monkeypatch.setattr(module, name, watched(getattr(module, name)))
    sf.sample(easy.X, PRIOR, **SHORT)
    assert len(inside) == 3
    assert min(inside) >= 1
    assert blas_limit.inside == 0


def test_the_signal_is_added_up_in_parts(monkeypatch):
    rng = np.random.default_rng(0)
    F, L = rng.normal(size=(7, 3)), rng.normal(size=(11, 3))
    monkeypatch.setattr("sparsefactor.signals.ENTRIES", 15)
    total = np.ones((7, 11))
    add_signal(total, F, L)
    np.testing.assert_allclose(total, 1 + F @ L.T, rtol=1e-14)


def test_adding_up_the_signal_needs_no_second_matrix():
    F, L, total = np.ones((2000, 2)), np.ones((3000, 2)), np.zeros((2000, 3000))
    tracemalloc.start()
    add_signal(total, F, L)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.3 * total.nbytes


def test_a_bad_verdict_is_a_warning():
    sim = sf.simulate(n_features=20, n_samples=15, inclusion=[0.5, 0.5], snr=5, seed=0)
    prior = sf.Prior(n_factors=2, inclusion=0.5)
    with pytest.warns(sf.SamplingWarning, match="Not reliable yet.* where 100 are needed") as caught:
        mc = sf.sample(sim.X, prior, n_chains=2, n_warmup=5, n_draws=6)
    assert str(caught[0].message) == str(mc.verdict)
    assert caught[0].filename == __file__


@pytest.mark.filterwarnings("error")
def test_a_good_verdict_is_no_warning():
    sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5], snr=5, seed=0)
    assert sf.sample(sim.X, sf.Prior(n_factors=1, inclusion=0.5), n_draws=400, n_warmup=100).diagnostics().ok
