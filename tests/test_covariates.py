"""Known covariates, and intercepts where entries are missing: the equations, and what fits make of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import digamma, gammaln
from tests.helpers.elbo import direct_elbo, q_of
from tests.helpers.problems import prior_for, random_vi_state, small_data

import sparsefactor as sf
from sparsefactor.data import as_data
from sparsefactor.design import Design
from sparsefactor.engine import build_engine
from sparsefactor.gibbs.sweep import Gibbs
from sparsefactor.model import log_joint
from sparsefactor.vi.cavi import CAVI

SETTINGS = [
    pytest.param(noise, inclusion, joint, missing, groups, id=f"{noise}-{joint}-{missing}-{groups is not None}")
    for noise, inclusion, joint, groups in (
        ("feature", [0.3, 0.7], False, None),
        ("feature", sf.Beta(1.5, 2.5), True, [0, 1, 0, 0, 1, 1]),
        ("shared", sf.Beta(1.5, 2.5), True, None),
        ("sample", [0.3, 0.7], True, None),
        ("sample", sf.Beta(1.5, 2.5), False, [0, 1, 0, 0, 1, 1]),
    )
    for missing in (0.0, 0.3)
]


def with_design(data, d=2, precision=0.3, seed=5, slab=False):
    """slab: the first direction is flat still, as an intercept is."""
    basis = np.random.default_rng(seed).standard_normal((d, data.n_samples))
    return replace(data, design=Design(basis, slab, None, precision, slab=slab))


def cavi_for(noise, inclusion, joint, missing, groups, backend="reference", slab=False) -> CAVI:
    data = with_design(small_data(missing=missing), slab=slab)
    prior = prior_for(2, inclusion=inclusion, noise=noise, groups=groups).in_units_of(data)
    return CAVI(data, prior, build_engine(data, prior, backend), joint=joint)


def started(cavi: CAVI):
    state = random_vi_state(replace_design(cavi))
    rng = np.random.default_rng(9)
    rows = state.rows._replace(base=rng.standard_normal((6, 2)), base_var=rng.gamma(3.0, 0.2, (6, 2)))
    return cavi.finish(rows, state.columns, np.ones(2))


def replace_design(cavi: CAVI) -> CAVI:
    """The same problem without a design, to draw a state from."""
    data = replace(cavi.data, design=None)
    return CAVI(data, cavi.prior, build_engine(data, cavi.prior, "reference"), joint=cavi.joint)


def whole_elbo(cavi: CAVI, state, before=None) -> float:
    """The ELBO of the model with the directions, from that of the factors on what they leave.

    before: the rows that precisions of slabs were updated from.
    """
    data, design = cavi.data, cavi.data.design
    base, var = state.rows.base, state.rows.base_var
    q = q_of(data, cavi.prior, state.rows, state.columns)
    total = direct_elbo(data.less(base), cavi.prior, q)
    observed = np.ones(data.Y.shape) if data.observed is None else data.observed
    tau = state.rows.tau[:, None] if cavi.prior.noise == "feature" else cavi.weight(state.columns)[None, :]
    total -= 0.5 * np.sum(tau * observed * (var @ design.basis**2))
    if before is None:
        alpha = design.precision
        return total + 0.5 * float(np.sum(np.log(alpha) + np.log(var) + 1.0 - alpha * (base**2 + var)))
    a, b = cavi.prior.loading_shape, np.atleast_1d(cavi.prior.loading_rate)
    groups = cavi.prior.group_index if cavi.prior.grouped else np.zeros(6, dtype=int)
    for v in range(groups.max() + 1):
        own = groups == v
        for p in range(2):
            shape, rate = a + 0.5 * own.sum(), b[v % len(b)] + 0.5 * np.sum((before.base**2 + before.base_var)[own, p])
            mean, log_mean = shape / rate, digamma(shape) - np.log(rate)
            if not design.learnt[p]:
                mean, log_mean = design.precision, np.log(design.precision)
            else:  # E log p(alpha) and the entropy of q(alpha)
                total += a * np.log(b[v % len(b)]) - gammaln(a) + (a - 1) * log_mean - b[v % len(b)] * mean
                total += stats.gamma.entropy(shape, scale=1 / rate)
            second = base[own, p] ** 2 + var[own, p]
            total += 0.5 * np.sum(log_mean + np.log(var[own, p]) + 1.0 - mean * second)
    return float(total)


@pytest.mark.parametrize(("noise", "inclusion", "joint", "missing", "groups"), SETTINGS)
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_the_elbo_is_complete_and_never_falls(noise, inclusion, joint, missing, groups, backend):
    cavi = cavi_for(noise, inclusion, joint, missing, groups, backend)
    state = started(cavi)
    assert state.elbo == pytest.approx(whole_elbo(cavi, state), rel=1e-9)
    trace = [state.elbo]
    for _ in range(60):
        state = cavi.sweep(state)
        trace.append(state.elbo)
    assert np.all(np.diff(trace) >= -1e-9)
    assert state.elbo == pytest.approx(whole_elbo(cavi, state), rel=1e-9)


@pytest.mark.parametrize(("noise", "inclusion", "joint", "missing", "groups"), SETTINGS)
def test_with_slabs_the_elbo_is_complete_and_never_falls(noise, inclusion, joint, missing, groups):
    cavi = cavi_for(noise, inclusion, joint, missing, groups, "cpu", slab=True)
    state = started(cavi)
    trace = [state.elbo]
    for _ in range(60):
        before = state.rows
        state = cavi.sweep(state)
        trace.append(state.elbo)
    assert np.all(np.diff(trace) >= -1e-9)
    assert state.elbo == pytest.approx(whole_elbo(cavi, state, before), rel=1e-9)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_a_slide_leaves_the_fit_as_it_is_and_raises_the_elbo(missing):
    cavi = cavi_for("feature", sf.Beta(1.5, 2.5), True, missing, None)
    data = replace(cavi.data, design=replace(cavi.data.design, precision=1e-8))
    cavi = CAVI(data, cavi.prior, build_engine(data, cavi.prior, "reference"), joint=True)
    state = started(cavi)
    for _ in range(5):
        state = cavi.sweep(state)
    columns = cavi.slid(state.rows, state.columns)
    base = state.rows.base + (state.rows.eta * state.rows.mu) @ columns.slide
    mean, C = state.rows.eta * state.rows.mu, data.design.basis
    fit = mean @ state.columns.f_mean + state.rows.base @ C
    np.testing.assert_allclose(mean @ columns.f_mean + base @ C, fit, atol=1e-10)

    def elbo(slide):
        moved = state._replace(
            rows=state.rows._replace(base=state.rows.base + mean @ slide),
            columns=state.columns._replace(f_mean=state.columns.f_mean - slide @ C),
        )
        return whole_elbo(cavi, moved)

    best = elbo(columns.slide)
    assert best > state.elbo
    rng = np.random.default_rng(0)
    assert all(elbo(columns.slide + 0.05 * rng.standard_normal(columns.slide.shape)) < best for _ in range(5))


@pytest.mark.parametrize("noise", ["feature", "shared", "sample"])
@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("slab", [False, True])
def test_the_log_joint_of_a_sweep_is_that_of_the_whole_model(noise, missing, slab):
    data = with_design(small_data(missing=missing), slab=slab)
    prior = prior_for(2, inclusion=sf.Beta(1.5, 2.5), noise=noise).in_units_of(data)
    gibbs = Gibbs(data, prior, build_engine(data, prior, "cpu"))
    rng = np.random.default_rng(0)
    state, sums = gibbs.draw(gibbs.start(rng.standard_normal((6, 2)), rng.standard_normal((2, 5))), (1, 2), 0)
    alpha, pi = rng.gamma(2.0, 1.0, 2), rng.uniform(0.1, 0.9, 2)
    tau = {"feature": state.rows.tau, "shared": state.tau[:1], "sample": state.tau}[noise]
    rest = data.less(state.rows.base)
    whole = log_joint(rest, prior, L=state.rows.L * state.scale, F=state.F, Z=state.rows.Z, tau=tau, alpha=alpha, pi=pi)
    precision, base = np.array([data.design.precision] * 2), state.rows.base
    if slab:
        precision[1] = 1.7  # whatever it is, less its density given the loadings
        whole += stats.gamma.logpdf(1.7, prior.loading_shape, scale=1 / prior.loading_rate)
        given = prior.loading_shape + 3.0, 1 / (prior.loading_rate + 0.5 * np.sum(base[:, 1] ** 2))
        whole -= stats.gamma.logpdf(1.7, given[0], scale=given[1])
    whole += np.sum(stats.norm.logpdf(base, scale=precision**-0.5))
    shape, rate = prior.loading_shape + 0.5 * sums.active, prior.loading_rate + 0.5 * sums.l2
    whole -= np.sum(stats.gamma.logpdf(alpha, shape, scale=1 / rate))
    whole -= np.sum(stats.beta.logpdf(pi, 1.5 + sums.active, 2.5 + 6 - sums.active))
    assert gibbs.log_joint(state, sums) == pytest.approx(whole, rel=1e-9)


# ---- what fits make of them ---------------------------------------------------------------------------------------


def batched(seed=0, missing=0.0, strength=3.0):
    """Three factors, and a batch and an age that move every feature; all features have the same noise."""
    rng = np.random.default_rng([seed, 7])
    sim = sf.simulate(n_features=80, n_samples=60, inclusion=[0.5, 0.3, 0.2], snr=4, seed=seed, missing=missing)
    X = np.where(sim.missing, np.nan, sim.signal + 0.5 * rng.standard_normal((60, 80)))
    known = pd.DataFrame({"batch": (np.arange(60) % 3 == 0) * 1.0, "age": rng.uniform(20, 70, 60)})
    effect = strength * rng.standard_normal((80, 2)) * [1.0, 0.05]
    return sim, known, effect, X + known.to_numpy() @ effect.T


@pytest.mark.parametrize("missing", [0.0, 0.1])
@pytest.mark.parametrize("noise", ["feature", "sample"])
def test_covariates_take_no_factor(missing, noise):
    sim, known, effect, X = batched(missing=missing)
    prior = sf.Prior(n_factors=6, noise=noise)
    p = sf.fit_vi(X, prior, covariates=known, n_trials=10)
    assert (~p.empty).sum() == 3
    assert (~sf.fit_vi(X, prior, n_trials=10).empty).sum() > 3
    assert list(p.covariate_names) == ["batch", "age"]
    np.testing.assert_allclose(p.covariate_loadings_mean, effect, atol=0.15 * np.abs(effect).max())
    cosine = np.abs(np.corrcoef(p.activations_mean[:, :3].T, sim.activations.T))[:3, 3:].max(axis=0)
    assert cosine.min() > 0.95
    kept, removed = p.reconstruct(), p.reconstruct(covariates=False)
    np.testing.assert_allclose(kept - removed, (known - known.mean()).to_numpy() @ p.covariate_loadings_mean.T)
    assert np.sqrt(np.nanmean((kept - X) ** 2)) < 0.6 * np.nanstd(sim.X)


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_slabs_shrink_what_covariates_do_little_to(missing):
    """A strong batch is left as it is; an age that does nothing is all but taken out."""
    _, known, effect, X = batched(missing=missing)
    nothing = pd.DataFrame({"batch": known["batch"], "age": np.random.default_rng(3).uniform(20, 70, 60)})
    X = X - known[["age"]].to_numpy() @ effect[:, 1:].T
    prior = sf.Prior(n_factors=4)
    flat = sf.fit_vi(X, prior, covariates=nothing, n_trials=10)
    slab = sf.fit_vi(X, prior, covariates=nothing, covariate_loadings="slab", n_trials=10)
    assert (~slab.empty).sum() == 3
    np.testing.assert_allclose(slab.covariate_loadings_mean[:, 0], effect[:, 0], atol=0.15 * np.abs(effect).max())
    error = [np.sqrt(np.mean(p.covariate_loadings_mean[:, 1] ** 2)) for p in (flat, slab)]
    assert error[1] < 0.6 * error[0]
    mc = sf.sample(
        X,
        sf.Prior(n_factors=3),
        covariates=nothing,
        covariate_loadings="slab",
        n_chains=2,
        n_warmup=100,
        n_draws=200,
        progress=False,
    )
    apart = mc.covariate_loadings_mean[:, 0] - slab.covariate_loadings_mean[:, 0]
    assert np.sqrt(np.mean(apart**2)) < 0.05 * np.abs(effect).max()
    assert np.sqrt(np.mean(mc.covariate_loadings_mean[:, 1] ** 2)) < 0.7 * error[0]
    ratio = mc.covariate_loadings_sd / slab.covariate_loadings_sd
    assert 0.7 < np.median(ratio[:, 0]) < 1.5


def test_standard_deviations_of_covariates_loadings_are_those_of_a_regression():
    """Without factors to speak of, flat loadings have the spread of least squares."""
    rng = np.random.default_rng(0)
    known = np.column_stack([np.arange(60) % 2, rng.uniform(20, 70, 60)])
    known[:, 1] += 20 * known[:, 0]  # dependent
    X = known @ rng.standard_normal((2, 40)) + rng.standard_normal((60, 40))
    p = sf.fit_vi(X, sf.Prior(n_factors=1), covariates=known)
    apart = known - known.mean(axis=0)
    left = X - X.mean(axis=0) - apart @ p.covariate_loadings_mean.T
    variance = (left**2).sum(axis=0) / 59
    expected = np.sqrt(variance[:, None] * np.diag(np.linalg.inv(apart.T @ apart)))
    np.testing.assert_allclose(p.covariate_loadings_sd, expected, rtol=0.1)
    mc = sf.sample(X, sf.Prior(n_factors=1), covariates=known, n_chains=2, n_warmup=100, n_draws=300, progress=False)
    np.testing.assert_allclose(np.median(mc.covariate_loadings_sd / expected, axis=0), 1.0, rtol=0.15)


def test_draws_with_covariates(tmp_path):
    sim, known, effect, X = batched()
    settings = {"n_chains": 2, "n_warmup": 100, "n_draws": 150, "progress": False}
    mc = sf.sample(X, sf.Prior(n_factors=3), covariates=known, **settings)
    cosine = np.abs(np.corrcoef(mc.activations_mean.T, sim.activations.T))[:3, 3:].max(axis=0)
    assert cosine.min() > 0.95
    np.testing.assert_allclose(mc.covariate_loadings_mean, effect, atol=0.2 * np.abs(effect).max())
    assert mc.draws["posterior"]["covariate_loadings"].dims == ("chain", "draw", "feature", "covariate")
    mc.save(tmp_path / "mc.sf", precision="double")
    back = sf.load(tmp_path / "mc.sf")
    np.testing.assert_array_equal(back.reconstruct(), mc.reconstruct())
    np.testing.assert_array_equal(back.covariate_loadings_mean, mc.covariate_loadings_mean)
    np.testing.assert_array_equal(back.covariate_loadings_sd, mc.covariate_loadings_sd)
    assert mc.transform(X[:5], covariates=known[:5]).shape == (5, 3)


def test_new_samples_bring_their_covariates(tmp_path):
    _, known, _, X = batched()
    p = sf.fit_vi(X, sf.Prior(n_factors=3), covariates=known, n_trials=3, tol=1e-9)
    np.testing.assert_allclose(p.transform(X, covariates=known), p.activations_mean, atol=1e-3)
    np.testing.assert_allclose(p.transform(X, covariates=known.to_numpy()), p.activations_mean, atol=1e-3)
    np.testing.assert_allclose(p.transform(X, covariates=known[["age", "batch"]]), p.activations_mean, atol=1e-3)
    holes = np.where(np.arange(80) % 7 == 0, np.nan, X)
    filled = p.impute(holes, covariates=known)
    assert np.sqrt(np.mean((filled - X)[np.isnan(holes)] ** 2)) < 0.6 * np.std(X)
    assert np.isfinite(p.log_density(X, covariates=known)).all()
    held = np.where(np.arange(80) % 7 == 0, X, np.nan)
    assert np.nanmean(p.log_density(held, of="entries")) > -3.0
    with pytest.raises(ValueError, match=r"the fit had covariates \('batch', 'age'\).*pass covariates="):
        p.transform(X)
    with pytest.raises(ValueError, match="covariates must have those of the fit; 'age' is lacking"):
        p.transform(X, covariates=known[["batch"]])
    with pytest.raises(ValueError, match="must be those of the fit, 2 columns; got 1"):
        p.transform(X, covariates=known[["batch"]].to_numpy())
    p.save(tmp_path / "p.sf")
    back = sf.load(tmp_path / "p.sf")
    np.testing.assert_array_equal(back.reconstruct(covariates=False), p.reconstruct(covariates=False))


def test_frames_are_matched_by_the_samples_names():
    _, known, _, X = batched()
    names = [f"s{j}" for j in range(60)]
    frame, known = pd.DataFrame(X, index=names), known.set_axis(names)
    p = sf.fit_vi(frame, sf.Prior(n_factors=2), covariates=known, n_trials=1)
    q = sf.fit_vi(frame, sf.Prior(n_factors=2), covariates=known.iloc[::-1], n_trials=1)
    np.testing.assert_array_equal(q.loadings_mean, p.loadings_mean)
    with pytest.raises(ValueError, match="a row for every sample; 's0' has none"):
        sf.fit_vi(frame, sf.Prior(n_factors=2), covariates=known.iloc[1:])


def test_dependent_covariates_are_one_direction():
    _, known, _, X = batched()
    doubled = known.assign(again=2 * known["batch"] + 1.0)
    p = sf.fit_vi(X, sf.Prior(n_factors=2), covariates=known, n_trials=1)
    q = sf.fit_vi(X, sf.Prior(n_factors=2), covariates=doubled, n_trials=1)
    np.testing.assert_allclose(q.reconstruct(), p.reconstruct(), atol=1e-2 * np.std(X))


@pytest.mark.parametrize(
    ("covariates", "kind", "match"),
    [
        (np.ones(6), ValueError, "a covariate must vary; 'covariate 1' does not"),
        (np.arange(5.0), ValueError, r"must be \(n_samples, c\); got shape \(5, 1\) for 6 samples"),
        ([1, 2, 3, np.nan, 5, 6], ValueError, "must be known for every sample; that of sample 3, column 0"),
        (["a", "b", "a", "b", "a", "b"], TypeError, r"covariates must be numbers.*get_dummies"),
        (np.eye(6), ValueError, "must leave something to explain; got 5 independent ones for 6 samples"),
    ],
)
def test_bad_covariates_are_refused(covariates, kind, match):
    X = np.random.default_rng(0).standard_normal((6, 4))
    with pytest.raises(kind, match=match):
        sf.fit_vi(X, sf.Prior(n_factors=1), covariates=covariates)


def test_other_kinds_of_loadings_are_refused():
    with pytest.raises(ValueError, match="covariate_loadings must be one of"):
        sf.fit_vi(np.eye(6), sf.Prior(n_factors=1), covariates=np.arange(6.0), covariate_loadings="ridge")


# ---- intercepts ---------------------------------------------------------------------------------------------------


def test_with_holes_the_intercept_is_part_of_the_model():
    """Means of what is seen would be off by as much as strong factors make them, which looks like a further factor."""
    sim = sf.simulate(n_features=200, n_samples=60, inclusion=[0.5, 0.9], snr=25, seed=1, missing=0.1)
    X = sim.X + 10.0
    prior = sf.Prior(n_factors=5)
    p = sf.fit_vi(X, prior)
    known = sf.fit_vi(X - 10.0 - sim.signal.mean(axis=0), prior, center=False)
    assert (~p.empty).sum() == (~known.empty).sum() == 2

    def error(q):
        """Of what varies: that the mean is not known costs as much as it must."""
        fit = q.reconstruct()
        return np.sqrt(np.mean((fit - fit.mean(axis=0) - sim.signal + sim.signal.mean(axis=0)) ** 2))

    assert error(p) < 1.02 * error(known)


def test_a_complete_matrix_has_no_intercept_in_its_model():
    data = as_data(np.random.default_rng(0).standard_normal((6, 4)), center=True)
    assert data.with_design(None, True).design is None
    holed = as_data(np.where(np.eye(6, 4), np.nan, 1.0 + np.arange(24.0).reshape(6, 4)), center=True)
    assert holed.with_design(None, True).design.intercept
    assert holed.with_design(None, False).design is None


# ---- the shells ---------------------------------------------------------------------------------------------------


def test_the_estimator_takes_covariates():
    _, known, _, X = batched()
    model = sf.SparseFactorAnalysis(n_components=4, n_init=3, random_state=0).fit(X, covariates=known)
    assert model.n_components_ == 3
    assert model.transform(X[:4], covariates=known[:4]).shape == (4, 3)
    assert np.isfinite(model.score_samples(X[:4], covariates=known[:4])).all()
    with pytest.raises(ValueError, match="pass covariates="):
        model.transform(X[:4])


def test_the_command_line_takes_covariates(tmp_path):
    from typer.testing import CliRunner

    from sparsefactor.cli.app import app

    _, known, _, X = batched()
    names = [f"s{j}" for j in range(60)]
    pd.DataFrame(X, index=names).add_prefix("f").to_csv(tmp_path / "X.csv")
    known.set_axis(names).iloc[::-1].to_csv(tmp_path / "known.csv")
    options = ["fit", str(tmp_path / "X.csv"), "-k", "4", "--trials", "3", "--out", str(tmp_path / "fit.sf")]
    done = CliRunner().invoke(app, [*options, "--covariates", str(tmp_path / "known.csv")])
    assert done.exit_code == 0, done.output
    p = sf.load(tmp_path / "fit.sf")
    assert (~p.empty).sum() == 3
    assert list(p.covariate_names) == ["batch", "age"]
    assert not p.labels.covariate_slab
    frame = pd.read_csv(tmp_path / "X.csv", index_col=0)
    for verb, expected in (("transform", p.transform(frame, covariates=known)), ("impute", frame)):
        asked = [verb, str(tmp_path / "fit.sf"), str(tmp_path / "X.csv"), "--out", str(tmp_path / f"{verb}.csv")]
        refused = CliRunner().invoke(app, asked)
        assert "pass --covariates TABLE" in refused.output
        done = CliRunner().invoke(app, [*asked, "--covariates", str(tmp_path / "known.csv")])
        assert done.exit_code == 0, done.output
        np.testing.assert_allclose(pd.read_csv(tmp_path / f"{verb}.csv", index_col=0), expected, atol=1e-9)
    options[-1] = str(tmp_path / "slab.sf")
    more = ["--covariates", str(tmp_path / "known.csv"), "--covariate-loadings", "slab"]
    done = CliRunner().invoke(app, [*options, *more])
    assert done.exit_code == 0, done.output
    assert sf.load(tmp_path / "slab.sf").labels.covariate_slab


@pytest.mark.parametrize(
    ("text", "title", "numbers"),
    [
        ("age\n31\n42.5\n", "age", [31.0, 42.5]),
        ('"age"\n31\nNA\n', "age", [31.0, np.nan]),
        ("1\n0\n", "covariate 1", [1.0, 0.0]),
        ("age,sex\n31,1\n42,0\n", None, None),
    ],
)
def test_a_single_covariate_needs_no_second_column(text, title, numbers, tmp_path):
    from sparsefactor.cli.options import read_covariates

    (tmp_path / "known.csv").write_text(text)
    found = read_covariates(tmp_path / "known.csv")
    if title is None:
        assert found.shape == (2, 2)
        return
    assert list(found.columns) == [title]
    np.testing.assert_array_equal(found[title], numbers)


def test_words_are_no_covariate(tmp_path):
    from sparsefactor.cli.options import read_covariates

    (tmp_path / "known.csv").write_text("sex\nm\nf\n")
    with pytest.raises(ValueError, match=r"covariates must be numbers; .* holds 'm'"):
        read_covariates(tmp_path / "known.csv")


def test_covariates_that_the_fit_had_not_are_refused():
    X = np.random.default_rng(0).standard_normal((20, 5))
    p = sf.fit_vi(X, n_factors=1, n_trials=1)
    with pytest.raises(ValueError, match="which had none; got some"):
        p.transform(X, covariates=np.ones((20, 1)))
