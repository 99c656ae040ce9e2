"""Figures: they show the numbers they are given, and can be written to a file."""

from types import SimpleNamespace

import numpy as np
import pytest

from sparsefactor import plot
from sparsefactor.simulate import paper_inclusion

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


def test_elbo_trace(tmp_path) -> None:
    history = {"iteration": np.arange(1, 6), "elbo": np.array([-90.0, -40.0, -11.0, -10.0, -10.0])}
    figure = plot.elbo(SimpleNamespace(elbo_history=history))
    left, right = figure.axes
    np.testing.assert_array_equal(left.lines[0].get_xdata(), history["iteration"])
    np.testing.assert_array_equal(left.lines[0].get_ydata(), history["elbo"])
    np.testing.assert_array_equal(right.lines[0].get_ydata(), [80.0, 30.0, 1.0])
    assert right.get_yscale() == "log"
    figure.savefig(tmp_path / "elbo.png")


def test_elbo_of_a_single_step(tmp_path) -> None:
    history = {"iteration": np.array([1]), "elbo": np.array([-3.0])}
    plot.elbo(SimpleNamespace(elbo_history=history)).savefig(tmp_path / "elbo.png")


def test_elbo_refuses_other_posteriors() -> None:
    with pytest.raises(TypeError, match="p must be a variational posterior; got a dict"):
        plot.elbo({})
