"""Known groups of features (views): every conditional, the ELBO, the search, and what results tell of them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from tests.helpers.elbo import direct_elbo, q_of
from tests.helpers.problems import prior_for, random_gibbs_state, random_vi_state, small_data

import sparsefactor as sf
from sparsefactor.data import as_data
from sparsefactor.gibbs.sweep import Gibbs
from sparsefactor.kernels.columns import rescaled
from sparsefactor.kernels.contract import RowNoise
from sparsefactor.kernels.reference import ReferenceEngine
from sparsefactor.model import log_joint
from sparsefactor.report.posterior import posterior_page
from sparsefactor.vi.cavi import CAVI

SETTINGS = [
    pytest.param(noise, inclusion, joint, missing, id=f"{noise}-{type(inclusion).__name__}-{joint}-{missing}")
    for noise in ("feature", "shared", "sample")
    for inclusion in ([0.3, 0.7], sf.Beta(1.5, 2.5))
    for joint in (False, True)
    for missing in (0.0, 0.3)
]
LABELS = ["rna", "protein", "rna", "rna", "protein", "rna"]


def cavi_for(noise, inclusion, joint, missing) -> CAVI:
    data = small_data(missing=missing)
    prior = prior_for(2, inclusion=inclusion, noise=noise, groups=LABELS)
    return CAVI(data, prior, ReferenceEngine(data, prior), joint=joint)


# ---- the equations ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("noise", "inclusion", "joint", "missing"), SETTINGS)
def test_the_elbo_is_complete_and_never_falls(noise, inclusion, joint, missing):
    cavi = cavi_for(noise, inclusion, joint, missing)
    state = random_vi_state(cavi)
    q = q_of(cavi.data, cavi.prior, state.rows, state.columns)
    assert state.columns.alpha_shape.shape == (2, 2)
    assert state.elbo == pytest.approx(direct_elbo(cavi.data, cavi.prior, q), rel=1e-10)
    trace = [state.elbo]
    for t in range(100):
        state = cavi.sweep(state, rescale=t % 2 == 1)
        trace.append(state.elbo)
    assert np.all(np.diff(trace) >= -1e-10)
    q = q_of(cavi.data, cavi.prior, state.rows, state.columns)
    assert state.elbo == pytest.approx(direct_elbo(cavi.data, cavi.prior, q), rel=1e-10)


def test_rescaling_with_groups_is_exact_and_optimal():
    cavi = cavi_for("feature", 0.4, False, 0.0)
    state = random_vi_state(cavi)

    def elbo(c):
        """Of the state with its factors' activations c times as large."""
        columns = state.columns._replace(
            f_mean=state.columns.f_mean * c[:, None],
            f_var=state.columns.f_var * c[:, None] ** 2,
            alpha_rate=state.columns.alpha_rate / c[:, None] ** 2,
        )
        rows = state.rows._replace(mu=state.rows.mu / c, s2=state.rows.s2 / c**2)
        return direct_elbo(cavi.data, cavi.prior, q_of(cavi.data, cavi.prior, rows, columns))

    _, scale = rescaled(state.columns, cavi.fixed)
    best = elbo(1 / scale)
    assert best > state.elbo
    assert all(elbo(factor / scale) < best for factor in (0.99, 1.01))


def test_every_inclusion_matches_the_enumeration_of_all_configurations():
    G, N, K = 3, 4, 2
    data = small_data(G, N, K, seed=3)
    prior = prior_for(K, inclusion=sf.Beta(1.0, 2.0), groups=["a", "b", "a"])
    engine = ReferenceEngine(data, prior)
    gibbs, state = Gibbs(data, prior, engine), random_gibbs_state(data, prior, seed=1)
    message, gamma = gibbs.message(state), np.ones(G)
    quiet = RowNoise(uniform=np.full((G, K), 0.5), normal=np.zeros((G, K)), gamma=gamma)
    tau = engine.gibbs_row_pass(state.rows, message, quiet)[0].tau
    alpha, pi = state.alpha.T[[0, 1, 0]], state.pi.T[[0, 1, 0]]

    def log_marginal(Z):
        total = np.sum(Z * np.log(pi) + (1 - Z) * np.log(1 - pi))
        for i in range(G):
            F, slab = state.F[Z[i] == 1], alpha[i, Z[i] == 1]
            cov = F.T @ np.diag(1 / slab) @ F + np.eye(N) / tau[i]
            total += stats.multivariate_normal.logpdf(data.Y[i], np.zeros(N), cov)
        return total

    for flat, configuration in enumerate(product((0, 1), repeat=G * K)):
        Z = np.reshape(configuration, (G, K)).astype(np.int8)
        i, k = divmod(flat % (G * K), K)
        one, zero = Z.copy(), Z.copy()
        one[i, k], zero[i, k] = 1, 0
        p = 1 / (1 + np.exp(log_marginal(zero) - log_marginal(one)))
        for shift, expected in ((-1e-9, 1), (1e-9, 0)):
            uniform = np.where(Z == 1, 0.0, 1.0)
            uniform[i, k] = p + shift
            noise = RowNoise(uniform=uniform, normal=np.zeros((G, K)), gamma=gamma)
            assert engine.gibbs_row_pass(state.rows._replace(Z=Z), message, noise)[0].Z[i, k] == expected


@pytest.mark.parametrize("inclusion", [[0.3, 0.7], sf.Beta(1.5, 2.5)])
def test_the_log_joint_has_slab_precisions_and_rates_integrated_out(inclusion):
    """p(all) / p(alpha, pi | the rest) does not depend on alpha and pi, and is what a sweep reports."""
    data = small_data(missing=0.2)
    prior = prior_for(2, inclusion=inclusion, groups=LABELS)
    gibbs = Gibbs(data, prior, ReferenceEngine(data, prior))
    state, sums = gibbs.draw(random_gibbs_state(data, prior), (1, 2), 0)
    rng = np.random.default_rng(0)
    settled = gibbs.prior
    for _ in range(3):
        alpha, pi = rng.gamma(2.0, 1.0, (2, 2)), rng.uniform(0.1, 0.9, (2, 2))
        learnt = settled.learns_inclusion
        whole = log_joint(
            data, settled, L=state.rows.L * state.scale, F=state.F, Z=state.rows.Z, tau=state.rows.tau, alpha=alpha,
            pi=pi if learnt else None,
        )  # fmt: skip
        shape, rate = settled.loading_shape + 0.5 * sums.active, settled.loading_rate + 0.5 * sums.l2
        whole -= np.sum(stats.gamma.logpdf(alpha, shape, scale=1 / rate))
        if learnt:
            size = np.array([4, 2])
            a, b = settled.inclusion.a, settled.inclusion.b
            whole -= np.sum(stats.beta.logpdf(pi, a + sums.active, b + size - sums.active))
        assert gibbs.log_joint(state, sums) == pytest.approx(whole, rel=1e-9)


# ---- what may be passed -----------------------------------------------------------------------------------------


def test_labels_by_name_and_by_position_are_the_same_prior():
    X = pd.DataFrame(np.random.default_rng(0).standard_normal((6, 3)), columns=["a", "b", "c"])
    data = as_data(X)
    by_position = sf.Prior(n_factors=1, groups=["y", "x", "y"]).in_units_of(data)
    by_dict = sf.Prior(n_factors=1, groups={"b": "x", "c": "y", "a": "y", "unused": "z"}).in_units_of(data)
    by_series = sf.Prior(n_factors=1, groups=pd.Series(["x", "y", "y"], index=["b", "c", "a"])).in_units_of(data)
    numbered = sf.Prior(n_factors=1, groups=pd.Series(["y", "x", "y"])).in_units_of(data)
    for prior in (by_position, by_dict, by_series, numbered):
        assert prior.group_names.tolist() == ["y", "x"]
        assert prior.group_index.tolist() == [0, 1, 0]
        np.testing.assert_array_equal(prior.loading_rate, by_position.loading_rate)
    assert not sf.Prior(n_factors=1, groups=["one"] * 3).in_units_of(data).grouped


@pytest.mark.parametrize(
    ("groups", "match"),
    [
        (["a", "b"], "one label per feature; got 2 labels for 3 features"),
        ({"a": "x", "b": "y"}, "must cover every feature of X; 1 of 3 have none, the first 'c'"),
        (["a", None, "b"], "every feature must have a group; feature 1 has none"),
        ({"a": "x", "b": float("nan"), "c": "y"}, "every feature must have a group; feature 'b' has none"),
        (np.zeros((3, 2)), "one label per feature, or labels by feature name"),
        ("rna", "one label per feature, or labels by feature name"),
        ([], "one label per feature, or labels by feature name"),
        ({}, "one label per feature, or labels by feature name"),
    ],
)
def test_groups_that_do_not_cover_the_features_are_refused(groups, match):
    X = pd.DataFrame(np.random.default_rng(0).standard_normal((6, 3)), columns=["a", "b", "c"])
    with pytest.raises(ValueError, match=match):
        sf.fit_vi(X, sf.Prior(n_factors=1, groups=groups))


def test_groups_and_modules_together_are_refused():
    with pytest.raises(ValueError, match="known groups or in unknown modules, not in both"):
        sf.Prior(n_factors=2, n_modules=2, groups=["a", "b"])


# ---- what a fit finds and tells ---------------------------------------------------------------------------------

VIEWS = np.repeat(["rna", "protein"], [60, 30])
IN_VIEW = np.array([[0.5, 0.4, 0.0], [0.5, 0.0, 0.6]])  # one factor in both views, one in each alone


@pytest.fixture(scope="module")
def sim() -> sf.Simulation:
    return sf.simulate(n_features=90, n_samples=50, inclusion=IN_VIEW, groups=VIEWS, snr=3, seed=1)


@pytest.fixture(scope="module")
def vi(sim) -> sf.VIPosterior:
    return sf.fit_vi(sim.X, sf.Prior(n_factors=5, groups=VIEWS), n_trials=4)


@pytest.fixture(scope="module")
def mc(sim) -> sf.MCMCPosterior:
    return sf.sample(sim.X, sf.Prior(n_factors=4, groups=VIEWS), n_chains=2, n_warmup=100, n_draws=100, progress=False)


def views_of(p, sim) -> np.ndarray:
    """(views, true factors) in which views the factor that matches each true one is."""
    held = np.flatnonzero(~p.empty)
    cosine = np.abs(np.corrcoef(p.activations_mean[:, held].T, sim.activations.T))[: len(held), len(held) :]
    match = cosine.argmax(axis=0)
    assert len(set(match)) == sim.n_factors
    return ~p.empty_by_group[:, held[match]]


@pytest.mark.parametrize(
    ("seed", "missing", "noise"),
    [(seed, missing, "feature") for seed in (0, 1, 2) for missing in (0.0, 0.1)]
    + [(0, 0.0, "shared"), (1, 0.0, "sample")],
)
def test_a_factor_of_one_view_is_found_as_such(seed, missing, noise):
    """Views in units of their own; two factors to spare. `python -m benchmarks.views` does so at greater length."""
    sim = sf.simulate(
        n_features=90, n_samples=60, inclusion=IN_VIEW, groups=VIEWS, snr=3, seed=10 + seed, missing=missing
    )
    X = sim.X * np.where(VIEWS == "rna", 1.0, 20.0)
    if noise != "feature":  # the same signal under noise that all features have alike, in one unit
        rng = np.random.default_rng(seed)
        level = np.exp(rng.normal(0.0, 0.5, (60, 1))) if noise == "sample" else 1.0
        X = sim.activations @ sim.loadings.T + 0.5 * level * rng.standard_normal(X.shape)
    p = sf.fit_vi(X, sf.Prior(n_factors=5, groups=VIEWS, noise=noise))
    assert (~p.empty).sum() == 3
    assert np.array_equal(views_of(p, sim), IN_VIEW > 0)


def test_draws_find_the_views_too(mc, sim):
    assert np.array_equal(views_of(mc, sim), IN_VIEW > 0)
    posterior = mc.draws["posterior"]
    assert posterior["loading_precision"].dims == ("chain", "draw", "group", "factor")
    assert posterior["inclusion_rate"].sizes["group"] == 2
    assert list(posterior["group"].values) == ["rna", "protein"]
    assert mc.loading_precision_mean.shape == mc.inclusion_rate_mean.shape == (2, 4)
    assert mc.diagnostics().table is not None


def test_rates_differ_between_views(vi, sim):
    assert vi.loading_precision_mean.shape == vi.inclusion_rate_mean.shape == (2, 5)
    active = ~vi.empty_by_group
    assert vi.inclusion_rate_mean[active].min() > 0.2
    assert vi.inclusion_rate_mean[:, ~vi.empty][~active[:, ~vi.empty]].max() < 0.1


@pytest.mark.parametrize("which", ["vi", "mc"])
def test_variance_by_group_adds_up_to_that_by_factor(which, request):
    p = request.getfixturevalue(which)
    share = p.variance_explained(by="group")
    total = p.fit_sums.total
    weight = np.array([total[:60].sum(), total[60:].sum()]) / total.sum()
    assert share.shape == (2, p.n_factors)
    np.testing.assert_allclose(weight @ share, p.variance_explained(by="factor"), rtol=1e-9, atol=1e-12)


def test_without_groups_there_is_no_variance_by_group(sim):
    p = sf.fit_vi(sim.X, n_factors=2, n_trials=1)
    with pytest.raises(ValueError, match=r"this one had none; fit again with Prior\(groups=...\)"):
        p.variance_explained(by="group")


@pytest.mark.parametrize("which", ["vi", "mc"])
def test_saving_keeps_groups(which, request, tmp_path):
    p = request.getfixturevalue(which)
    p.save(tmp_path / "p.sf", precision="double")
    q = sf.load(tmp_path / "p.sf")
    assert list(q.prior.group_names) == ["rna", "protein"]
    np.testing.assert_array_equal(q.prior.group_index, p.prior.group_index)
    np.testing.assert_array_equal(q.variance_explained(by="group"), p.variance_explained(by="group"))
    np.testing.assert_array_equal(q.empty_by_group, p.empty_by_group)
    np.testing.assert_array_equal(q.inclusion_rate_mean, p.inclusion_rate_mean)
    assert q.to_datatree() is not None


def test_keeping_chains_keeps_groups(mc):
    one = mc.keep_chains([1])
    assert one.variance_explained(by="group").shape == (2, 4)
    assert one.loading_precision_mean.shape == (2, 4)


def test_a_run_with_groups_is_gone_on_to_the_bit(sim, tmp_path):
    named = pd.DataFrame(sim.X, columns=[f"f{i}" for i in range(90)])
    prior = sf.Prior(n_factors=3, groups=dict(zip(named.columns, VIEWS, strict=True)))
    settings = {"n_chains": 1, "n_warmup": 5, "init": "random", "progress": False, "precision": "double"}
    whole = sf.sample(named, prior, n_draws=20, **settings)
    sf.sample(named, prior, n_draws=10, path=tmp_path / "run", **settings)
    longer = sf.sample(named, prior, n_draws=20, path=tmp_path / "run", **settings)
    np.testing.assert_array_equal(longer.loading_precision_mean, whole.loading_precision_mean)
    np.testing.assert_array_equal(longer.loadings_mean, whole.loadings_mean)
    other = sf.Prior(n_factors=3, groups=list(VIEWS[::-1]))
    with pytest.raises(ValueError, match="prior"):
        sf.sample(named, other, n_draws=20, path=tmp_path / "run", **settings)


def test_pruning_and_independent_activations_know_groups(sim):
    p = sf.fit_vi(sim.X, sf.Prior(n_factors=5, groups=VIEWS), n_trials=3, prune=True, activations="independent")
    assert p.n_factors == 3
    assert np.array_equal(views_of(p, sim), IN_VIEW > 0)


def test_given_inclusion_and_groups_go_together(sim):
    p = sf.fit_vi(sim.X, sf.Prior(inclusion=[0.1, 0.4, 0.4, 0.4], groups=VIEWS), n_trials=3)
    assert p.loading_precision_mean.shape == (2, 4)
    assert p.inclusion_rate_mean.shape == (0,)


def test_the_report_and_the_picture_show_groups(vi):
    page = posterior_page(vi)
    assert "Variance explained by group" in page
    assert "Factors in each group: rna: 1, " in page
    ax = sf.plot.variance_by_group(vi)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["rna", "protein"]
    assert len(ax.texts) == 2 * (~vi.empty).sum()


def test_simulating_from_a_prior_with_groups_draws_each_groups_own():
    hyper = {"noise_shape": 3.0, "noise_rate": 1.0, "loading_shape": 3.0, "loading_rate": 2.0}
    prior = sf.Prior(n_factors=3, inclusion=sf.Beta(1, 1), groups=np.repeat(["a", "b"], 4000), **hyper)
    sim = sf.simulate(n_features=8000, n_samples=3, prior=prior, seed=3)
    assert sim.loading_precision.shape == sim.inclusion_rate.shape == (2, 3)
    for v, own in enumerate((slice(0, 4000), slice(4000, 8000))):
        np.testing.assert_allclose(sim.inclusion[own].mean(axis=0), sim.inclusion_rate[v], atol=0.03)
        spread = np.sum(sim.loadings[own] ** 2, axis=0) / sim.inclusion[own].sum(axis=0)
        np.testing.assert_allclose(spread, 1 / sim.loading_precision[v], rtol=0.15)
    with pytest.raises(ValueError, match="one row per feature, or per group; got 3 rows for 4 features in 2 groups"):
        sf.simulate(n_features=4, n_samples=3, inclusion=np.full((3, 2), 0.5), groups=[0, 0, 1, 1], snr=1)
    with pytest.raises(ValueError, match="groups must come from one place"):
        sf.simulate(n_features=4, n_samples=3, prior=prior, groups=[0, 0, 1, 1])


def test_the_command_line_reads_groups(sim, tmp_path):
    from typer.testing import CliRunner

    from sparsefactor.cli.app import app

    names = [f"f{i}" for i in range(90)]
    pd.DataFrame(sim.X, columns=names).to_csv(tmp_path / "X.csv", index=False)
    pd.DataFrame({"feature": names[::-1], "view": VIEWS[::-1]}).to_csv(tmp_path / "views.tsv", sep="\t", index=False)
    options = ["fit", str(tmp_path / "X.csv"), "-k", "3", "--trials", "1", "--out", str(tmp_path / "fit.sf")]
    done = CliRunner().invoke(app, [*options, "--groups", str(tmp_path / "views.tsv")])
    assert done.exit_code == 0, done.output
    assert list(sf.load(tmp_path / "fit.sf").prior.group_names) == ["rna", "protein"]
    from sparsefactor.cli.options import read_labels

    (tmp_path / "semicolon.csv").write_text("feature;view\nf0;rna\nf1;rna\n")
    assert read_labels(tmp_path / "semicolon.csv") == {"f0": "rna", "f1": "rna"}
    (tmp_path / "twice.csv").write_text("feature,view\nf0,rna\nf0,protein\n")
    with pytest.raises(ValueError, match="'rna' and 'protein' for 'f0'; remove one"):
        read_labels(tmp_path / "twice.csv")


def test_a_factor_may_well_be_absent_from_a_view_beforehand():
    """Under Beta(1, 1) it would be with a probability of one in as many as the view has features, and one."""
    prior = sf.Prior(n_factors=3, groups=VIEWS)
    assert repr(prior.inclusion) == "Beta(a=0.1, b=1.0)"
    rng = np.random.default_rng(0)
    rates = rng.beta(prior.inclusion.a, prior.inclusion.b, 20_000)
    assert 0.4 < np.mean((1.0 - rates) ** 200) < 0.7  # a view of 200 features without any of them
    for one in (None, ["rna"] * 90, dict.fromkeys(["a", "b"], "rna")):
        assert sf.Prior(n_factors=3, groups=one).inclusion == sf.Beta(1, 1)
    assert sf.Prior(n_factors=3, groups=VIEWS, inclusion=sf.Beta(1, 1)).inclusion == sf.Beta(1, 1)
