"""Figures: they show the numbers they are given, and can be written to a file."""

import os
import subprocess
import sys
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import sparsefactor as sf
from sparsefactor import plot
from sparsefactor.explained import FitSums
from sparsefactor.plot.base import short
from sparsefactor.plot.chains import ranks
from sparsefactor.plot.heatmap import feature_order
from sparsefactor.posterior import Labels
from sparsefactor.simulate import paper_inclusion
from sparsefactor.words import percent

RNG = np.random.default_rng(0)


def test_heatmap_shows_each_panel(tmp_path) -> None:
    panels = {"Truth": paper_inclusion(), "VI": RNG.random((800, 6))}
    figure = plot.inclusion_heatmap(panels)
    *axes, bar = figure.axes
    assert [ax.get_title() for ax in axes] == ["Truth", "VI"]
    for ax, values in zip(axes, panels.values(), strict=True):
        (image,) = ax.images
        shown = np.asarray(image.get_array())
        rows, columns = (big // small for big, small in zip(shown.shape, values.shape, strict=True))
        np.testing.assert_array_equal(shown[::rows, ::columns], np.asarray(values, dtype=float))
        assert image.get_extent() == [0.5, 6.5, 800, 0]
        assert image.get_clim() == (0, 1)
        assert [label.get_text() for label in ax.get_xticklabels()] == list("123456")
    assert bar.get_ylabel() == "probability of inclusion"
    figure.savefig(tmp_path / "inclusion.png")
    assert (tmp_path / "inclusion.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("shape", [(1, 1), (3, 60), (50, 31)])
def test_heatmap_of_other_shapes(tmp_path, shape) -> None:
    figure = plot.inclusion_heatmap({"one": RNG.random(shape), "two": RNG.random((7, 2))})
    figure.savefig(tmp_path / "any.png")
    assert all(size >= plot.MOST_PIXELS for size in figure.axes[0].images[0].get_array().shape)


def test_colours_differ_in_lightness() -> None:
    from matplotlib import colormaps

    red, green, blue, _ = colormaps[plot.COLOR_MAP](np.linspace(0, 1, 11)).T
    lightness = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    assert np.all(np.diff(lightness) < 0)


def test_edges_between_factors_are_sharp() -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = plot.inclusion_heatmap({"half": np.tile([1.0, 0.0, 1.0], (800, 1))})
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    ax, pixels = figure.axes[0], np.asarray(canvas.buffer_rgba())[..., :3].mean(axis=2)
    left, right = ax.transData.transform([(0.5, 400), (3.5, 400)])[:, 0].round().astype(int)
    row = pixels[pixels.shape[0] // 2, left + 2 : right - 2]
    dark, light = row.min(), row.max()
    # All but a few pixels at the two edges are of the one colour or the other.
    assert np.sum((row > dark + 10) & (row < light - 10)) < 0.06 * len(row)


@pytest.mark.parametrize(
    ("panels", "message"),
    [
        ({}, "panels must name at least one matrix"),
        ({"a": np.ones(3)}, r"a panel must be \(n_features, n_factors\); got shape \(3,\) for 'a'"),
        ({"a": np.full((2, 2), 1.5)}, r"probabilities in \[0, 1\]; 'a' does not"),
        ({"a": np.full((2, 2), np.nan)}, r"probabilities in \[0, 1\]; 'a' does not"),
    ],
)
def test_heatmap_refusals(panels, message) -> None:
    with pytest.raises(ValueError, match=message):
        plot.inclusion_heatmap(panels)


# ---- results --------------------------------------------------------------------------------------------------------

SIM = sf.simulate(n_features=50, n_samples=45, inclusion=[0.3, 0.5, 0.2], snr=3, missing=0.05, seed=1)
NAMES = [f"gene {i} with a name that is far too long" if i % 7 == 0 else f"gene {i}" for i in range(50)]
X = pd.DataFrame(SIM.X, columns=NAMES, index=[f"person {j}" for j in range(45)])
# A vague slab: the chains below are too short for a factor that comes and goes.
PRIOR = sf.Prior(n_factors=5, inclusion=sf.Beta(1, 1), loading_shape=1e-3, loading_rate=1e-3)


@pytest.fixture(scope="module")
def vi() -> sf.VIPosterior:
    return sf.fit_vi(X, PRIOR, n_trials=4, race=False)


@pytest.fixture(scope="module")
def mc() -> sf.MCMCPosterior:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sf.SamplingWarning)
        return sf.sample(X, PRIOR, n_chains=3, n_warmup=60, n_draws=60, progress=False)


@pytest.fixture(scope="module")
def large(vi) -> sf.VIPosterior:
    """20,000 features, 30 factors, 400 samples: nobody need wait for the fit."""
    G, K, N = 20_000, 30, 400
    inclusion = (RNG.random((G, K)) < 0.05).astype(float)
    size = np.sort(RNG.random(K))[::-1].copy()
    sums = FitSums(
        total=np.full(G, 1e-3),
        count=np.full(G, N),
        residual=np.full((1, 1, G), 4e-4),
        cross=np.zeros((1, 1, K)),
        size=size[None, None],
    )
    labels = Labels(
        feature_names=np.array([f"feature number {i}" for i in range(G)]), sample_names=np.arange(N), offset=np.zeros(G)
    )
    return replace(
        vi,
        prior=sf.Prior(n_factors=K, inclusion=0.05),
        labels=labels,
        loadings_mean=inclusion * RNG.normal(size=(G, K)),
        loadings_sd=0.1 * inclusion,
        inclusion_prob=inclusion,
        activations_mean=RNG.normal(size=(N, K)),
        activations_sd=np.full((N, K), 0.1),
        noise_precision_mean=np.ones(G),
        fit_sums=sums,
        stability=np.ones(K),
        trial_agreement=RNG.random((9, K)),
    )


def rendered(drawing) -> np.ndarray:
    """(height, width) the picture's lightness, from 0 to 255."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(getattr(drawing, "figure", None) or drawing)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[..., :3].mean(axis=2)
    assert pixels.std() > 5, "the picture is blank"
    return pixels


def words(ax, axis: str) -> list[str]:
    return [label.get_text() for label in getattr(ax, f"get_{axis}ticklabels")()]


def inside(drawing) -> None:
    """No title, label or name is cut off at the figure's edge."""
    figure = getattr(drawing, "figure", None) or drawing
    rendered(drawing)
    box = figure.bbox
    for ax in figure.axes:
        names = [
            tick.label1
            for axis, ends in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim()))
            for tick in axis.get_major_ticks()
            if min(ends) <= tick.get_loc() <= max(ends) and tick.label1.get_visible()  # others are not drawn
        ]
        for text in (ax.title, ax.xaxis.label, ax.yaxis.label, *names):
            if text.get_text() and text.get_visible():
                extent = text.get_window_extent()
                assert extent.x0 >= box.x0 - 2, text
                assert extent.x1 <= box.x1 + 2, text
                assert extent.y0 >= box.y0 - 2, text
                assert extent.y1 <= box.y1 + 2, text


@pytest.mark.parametrize("name", ["heatmap", "top_loadings", "activations", "scatter", "variance_explained", "elbo"])
def test_every_picture_of_a_variational_fit_can_be_seen(vi, name) -> None:
    inside(plot.KINDS[name](vi))


@pytest.mark.parametrize(
    "name", ["heatmap", "top_loadings", "activations", "scatter", "variance_explained", "trace", "rank", "agreement"]
)
def test_every_picture_of_draws_can_be_seen(mc, name) -> None:
    inside(plot.KINDS[name](mc))


@pytest.mark.parametrize(
    "name", ["heatmap", "top_loadings", "activations", "scatter", "variance_explained", "agreement"]
)
def test_thirty_factors_and_twenty_thousand_features(large, name) -> None:
    inside(plot.KINDS[name](large))


def test_a_blank_picture_is_noticed() -> None:
    from matplotlib.figure import Figure

    with pytest.raises(AssertionError, match="blank"):
        rendered(Figure())


def test_heatmap_shows_the_numbers_in_their_order(vi, large) -> None:
    for what, values in (("inclusion", vi.inclusion_prob), ("loadings", vi.loadings_mean)):
        ax = plot.heatmap(vi, what)
        solid = np.flatnonzero(~vi.empty)
        order = feature_order(vi)
        shown = np.asarray(ax.images[0].get_array())
        step = shown.shape[0] // 50, shown.shape[1] // len(solid)
        np.testing.assert_array_equal(shown[:: step[0], :: step[1]], values[order][:, solid])
        assert words(ax, "x") == [str(k + 1) for k in solid]
        assert words(ax, "y")[0] == short(NAMES[order[0]])
        assert ax.figure.axes[1].get_ylabel() in ("probability of inclusion", "loading")
        assert "2 empty left out" in ax.get_xlabel()
    assert words(plot.heatmap(vi, cluster=False), "y") == [short(name) for name in NAMES]
    wide = plot.heatmap(large)
    assert wide.get_ylabel() == "20,000 features, those with the same factors together"
    assert len(words(wide, "x")) == 30
    assert wide.images[0].get_array().size < 4e6


def test_loadings_of_many_features_do_not_fade(large) -> None:
    """Means over neighbours of opposite signs would be nothing, and a few outliers would make all others pale."""
    ax = plot.heatmap(large, "loadings")
    shown = np.asarray(ax.images[0].get_array())
    vmin, vmax = ax.images[0].get_clim()
    assert vmin == -vmax
    solid = np.abs(shown[:, :5]).max(axis=0)  # of the first factor
    assert solid.min() > 0.9 * vmax
    own = shown[: len(shown) // 100, 0]  # the first features: positive on the first factor
    assert np.median(own) > 0.3 * vmax


def test_features_with_the_same_factors_stand_together(large) -> None:
    order = feature_order(large)
    weight = np.abs(large.loadings_mean) * np.sqrt(np.mean(large.activations_mean**2, axis=0))
    first = np.argmax(weight * (large.inclusion_prob > 0.5), axis=1)[order]
    none = ~(large.inclusion_prob > 0.5).any(axis=1)[order]
    assert np.all(np.diff(none.astype(int)) >= 0)
    assert np.all(np.diff(first[~none]) >= 0)
    assert sorted(order) == list(range(20_000))


def test_top_loadings_with_intervals(vi) -> None:
    ax = plot.top_loadings(vi, 2, n=8)
    order = np.argsort(-np.abs(vi.loadings_mean[:, 1]))[:8]
    assert words(ax, "y") == [short(NAMES[i]) for i in order]
    points = np.sort(
        np.concatenate([line.get_xdata() for line in ax.lines if len(line.get_xdata()) and line.get_marker() == "o"])
    )
    np.testing.assert_allclose(points, np.sort(vi.loadings_mean[order, 1]))
    ends = np.concatenate([np.array(bar.get_segments())[:, :, 0] for bar in ax.collections])
    np.testing.assert_allclose(np.sort(ends[:, 1] - ends[:, 0]), np.sort(4 * vi.loadings_sd[order, 1]))
    assert ax.get_title().startswith("Factor 2 (")


def test_activations_by_group_and_by_sample(vi) -> None:
    F = vi.activations_mean[:, 0]
    groups = np.where(F < -0.5, "low", np.where(F > 0.5, "high", "middle"))
    ax = plot.activations(vi, 1, groups=groups)
    assert words(ax, "y") == ["high", "middle", "low"]  # by their medians
    names = words(plot.activations(vi, 1), "y")
    assert names[0] == f"person {np.argmax(vi.activations_mean[:, 0])}"
    assert len(names) == 45
    with pytest.raises(ValueError, match=r"groups must have one value per sample \(45\); got shape \(3,\)"):
        plot.activations(vi, 1, groups=["a", "b", "c"])


def test_scatter_by_label_and_by_number(vi) -> None:
    ax = plot.scatter(vi, 1, 3, color=["a", "b", "c"] * 15)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b", "c"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("factor 1", "factor 3")
    ax = plot.scatter(vi, 1, 2, color=pd.Series(np.arange(45.0), name="age"))
    np.testing.assert_array_equal(ax.collections[0].get_array(), np.arange(45.0))
    assert ax.figure.axes[1].get_ylabel() == "age"


def test_variance_explained_bars(vi) -> None:
    ax = plot.variance_explained(vi)
    solid = ~vi.empty
    heights = [bar.get_height() for bar in ax.patches]
    np.testing.assert_allclose(heights, 100 * vi.variance_explained(by="factor")[solid])
    assert percent(vi.variance_explained()) in ax.get_title()


def test_elbo_of_all_trials(vi, tmp_path) -> None:
    left, right = plot.elbo(vi).axes
    assert len(left.lines) == 4
    np.testing.assert_array_equal(left.lines[-1].get_ydata(), vi.elbo_history["elbo"])  # the winner, on top
    ends = sorted(line.get_ydata()[-1] for line in left.lines)
    np.testing.assert_allclose(ends, sorted(vi.trials["elbo"]))
    assert left.get_ylim()[1] > vi.elbo
    assert right.get_yscale() == "log"
    vi.save(tmp_path / "p.sf")
    assert len(plot.elbo(sf.load(tmp_path / "p.sf")).axes[0].lines) == 4
    bare = SimpleNamespace(elbo_history={"iteration": np.array([1]), "elbo": np.array([-3.0])}, elbo=-3.0)
    inside(plot.elbo(bare))
    with pytest.raises(TypeError, match="p must be a variational posterior; got a dict"):
        plot.elbo({})


def test_traces_and_ranks_are_those_of_the_relabelled_draws(mc) -> None:
    L = mc.draws["posterior"]["loadings"].values
    figure = plot.trace(mc)
    np.testing.assert_allclose(figure.axes[1].lines[2].get_ydata(), np.sum(L[2, :, :, 0] ** 2, axis=1))
    assert figure.axes[0].get_ylabel() == "log joint"
    assert figure.axes[1].get_ylabel().startswith("factor 1\n")
    assert len(figure.axes) == 1 + np.count_nonzero(~mc.empty)
    assert len(plot.trace(mc, "n_active", n=1).axes) == 2
    counts = [patch.get_data().values for patch in plot.rank(mc).axes[1].patches]
    assert len(counts) == 3
    assert all(values.sum() == 60 for values in counts)
    rows = np.array([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(ranks(rows), [[0.5, 1.5], [2.5, 3.5]])


def test_long_traces_are_thinned(mc) -> None:
    from sparsefactor.plot.chains import MOST_POINTS, _trace

    ax = plot.base.new_figure((3, 2)).subplots()
    _trace(ax, RNG.normal(size=(2, 4500)))
    assert all(len(line.get_xdata()) <= MOST_POINTS for line in ax.lines)
    assert ax.lines[0].get_xdata()[-1] > 4490


def test_agreement(vi, mc, large) -> None:
    def shown(ax) -> np.ndarray:
        return np.asarray(ax.images[0].get_array())

    between = shown(plot.agreement(vi, mc))
    assert between.shape == (3, 3)
    assert np.all(np.argmax(between, axis=1) == np.arange(3))
    chains = shown(plot.agreement(mc))
    assert chains.shape == (3, 3)
    assert chains.min() > 0.9
    trials = shown(plot.agreement(vi))
    np.testing.assert_array_equal(trials, np.clip(vi.trial_agreement[:, ~vi.empty], 0, 1))
    with pytest.raises(ValueError, match="both results must be of the same samples; got 45 and 400"):
        plot.agreement(vi, large)
    with pytest.raises(ValueError, match="this fit has none; fit with race=False"):
        plot.agreement(replace(vi, trial_agreement=np.zeros((0, 5))))


def test_missingness(vi) -> None:
    ax = plot.missingness(X)
    np.testing.assert_array_equal(ax.images[0].get_array(), np.isnan(SIM.X))
    assert ax.get_title() == "5.0 % of the entries are missing"
    many = np.where(RNG.random((30, 5000)) < 0.2, np.nan, RNG.normal(size=(30, 5000)))
    ax = plot.missingness(many)
    assert ax.images[0].get_array().shape == (30, 1000)
    assert float(ax.images[0].get_array().mean()) == pytest.approx(np.isnan(many).mean())
    inside(ax)


def test_observed_against_fitted(vi) -> None:
    figure = plot.observed_fitted(vi, X)
    left, right = figure.axes
    seen = ~np.isnan(SIM.X)
    np.testing.assert_allclose(left.lines[0].get_xdata(), vi.predicted()[seen])
    np.testing.assert_allclose(left.lines[0].get_ydata(), SIM.X[seen])
    density = np.array([bar.get_height() for bar in right.patches])
    assert density.sum() * (10 / 60) == pytest.approx(1.0)
    middle = density[20:40].sum() * (10 / 60)  # within 1.67 standard deviations
    assert 0.85 < middle < 0.97
    inside(figure)
    big = sf.simulate(n_features=200, n_samples=60, inclusion=[0.3], snr=3, seed=1).X
    inside(plot.observed_fitted(sf.fit_vi(big, sf.Prior(n_factors=1), n_trials=1), big))
    with pytest.raises(ValueError, match="pass the data of the fit"):
        plot.observed_fitted(vi, SIM.X[:10])


def test_axes_are_taken_and_given_back(vi) -> None:
    from matplotlib.figure import Figure

    for draw in (plot.heatmap, plot.top_loadings, plot.activations, plot.scatter, plot.variance_explained):
        ax = Figure().subplots()
        assert draw(vi, ax=ax) is ax
        assert ax.get_title()


def test_factors_are_numbered_from_one(vi) -> None:
    for wrong in (0, 6, 1.0, True, "1"):
        with pytest.raises(ValueError, match="factor must be a whole number from 1 to 5"):
            plot.top_loadings(vi, wrong)


def test_other_refusals(vi) -> None:
    with pytest.raises(TypeError, match="p must be a result; got a dict"):
        plot.heatmap({})
    with pytest.raises(TypeError, match="this plot is of draws; got a VIPosterior"):
        plot.trace(vi)
    with pytest.raises(ValueError, match="what must be one of"):
        plot.heatmap(vi, "nothing")
    with pytest.raises(ValueError, match="n must be a whole number of at least 1; got 0"):
        plot.top_loadings(vi, n=0)
    alone = sf.fit_vi(SIM.X, n_factors=1, n_trials=1)
    with pytest.raises(ValueError, match="scatter needs two factors; this result has one"):
        plot.scatter(alone)


def test_nothing_but_empty_factors_can_be_drawn() -> None:
    noise = RNG.normal(size=(20, 15))
    p = sf.fit_vi(noise, sf.Prior(n_factors=2, inclusion=sf.Beta(1, 1)), n_trials=2)
    assert p.empty.all()
    for draw in (plot.heatmap, plot.top_loadings, plot.activations, plot.scatter, plot.variance_explained):
        rendered(draw(p))
    ax = plot.factor_correlation(p)
    rendered(ax)
    assert ax.get_title() == "Correlations of the factors (all are empty)"


def test_colours_have_contrast() -> None:
    for color in plot.base.PALETTE:
        channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
        assert 1.05 / (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05) >= 3, color


def test_long_names_are_cut_in_their_middle() -> None:
    names = [f"a rather long name of a sample, number {j}" for j in range(20)]
    cut = {short(name) for name in names}
    assert len(cut) == 20
    assert all(len(name) == 28 for name in cut)
    assert short("short") == "short"


def test_what_is_known_of_samples_is_matched_by_name() -> None:
    X = pd.DataFrame(RNG.standard_normal((20, 6)), index=[f"s{j}" for j in range(20)])
    p = sf.fit_vi(X, n_factors=2, n_trials=1)
    ages = pd.Series(np.arange(20.0), index=X.index)
    shown = [plot.scatter(p, color=given).collections[0].get_array() for given in (ages, ages[::-1], ages.to_numpy())]
    np.testing.assert_array_equal(shown[0], shown[1])
    np.testing.assert_array_equal(shown[0], shown[2])
    kinds = pd.Series(["a"] * 5 + ["b"] * 15, index=X.index)
    one, turned = (plot.activations(p, groups=given) for given in (kinds, kinds[::-1]))
    for mine, yours in zip(one.lines, turned.lines, strict=True):
        np.testing.assert_array_equal(mine.get_xdata(), yours.get_xdata())
    with pytest.raises(ValueError, match="color must have a row for every sample; 's1' has none"):
        plot.scatter(p, color=ages.drop("s1"))


@pytest.mark.parametrize(
    "draw", ["pl.variance_explained(a)", "choose_n_factors(X, [1], n_masks=2, n_trials=1, progress=False).plot()"]
)
def test_every_figure_is_one_that_a_notebook_shows(draw) -> None:
    """IPython learns to show figures when pyplot is imported; nobody needs to import it."""
    script = (
        "import sys, types; import numpy as np; import sparsefactor as sf\n"
        "X = np.random.default_rng(0).standard_normal((12, 6))\n"
        "a = types.SimpleNamespace(uns={'sfa': {'variance_explained_by_factor': [0.5], 'variance_explained': 0.5}})\n"
        "sys.modules['IPython'] = types.SimpleNamespace(get_ipython=lambda: object(), version_info=(9, 0))\n"
        f"sf.{draw}\n"
        "assert 'matplotlib.pyplot' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "MPLBACKEND": "agg"})


def test_a_notebook_is_shown_the_axes(vi) -> None:
    """Where pyplot is in use, new axes are pyplot's, which a notebook shows at the end of the cell."""
    script = (
        "import matplotlib; matplotlib.use('agg')\n"
        "from sparsefactor.plot.base import axes_for\n"
        "import sys\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "axes_for(None, (2, 2))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "import matplotlib.pyplot as plt\n"
        "ax = axes_for(None, (2, 2))\n"
        "assert plt.get_fignums() == [1] and plt.gcf() is ax.figure\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
