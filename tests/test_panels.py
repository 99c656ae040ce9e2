"""Lines over time and factors as bars."""

from dataclasses import replace

import numpy as np

from sparsefactor import plot


def test_lines_over_time_show_what_they_are_given() -> None:
    lines = [plot.Line([0.1, 1.0], [3.0, 2.0], "a"), plot.Line([0.2, 2.0], [3.0, 1.0], "b", marked=True)]
    figure = plot.over_time([[plot.Panel("snr = 5", "RRMSE", lines, {"prior mean": 4.0})]], note="quick")
    (ax,) = figure.axes
    assert ax.get_xscale() == "log"
    assert (ax.get_title(), ax.get_ylabel()) == ("snr = 5", "RRMSE")
    drawn = [line for line in ax.lines if len(line.get_xdata()) == 2 and line.get_linestyle() != ":"]
    np.testing.assert_array_equal([line.get_ydata() for line in drawn], [[3.0, 2.0], [3.0, 1.0]])
    assert drawn[1].get_linewidth() > drawn[0].get_linewidth()
    assert drawn[0].get_color() != drawn[1].get_color()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b", "largest ELBO", "prior mean"]
    assert figure.get_suptitle() == "quick"


def test_factor_bars_come_in_order_of_their_share() -> None:
    activations = np.arange(12.0).reshape(4, 3)
    figure = plot.factor_bars(activations, list("wxyz"), [0.1, 0.6, 0.3], note="made up")
    assert [ax.get_title() for ax in figure.axes] == ["2\n60.0%", "3\n30.0%", "1\n10.0%"]
    np.testing.assert_array_equal([bar.get_width() for bar in figure.axes[0].patches], activations[:, 1])
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == list("wxyz")
    assert figure.get_suptitle() == "made up"


def test_factor_bars_leave_empty_factors_out() -> None:
    figure = plot.factor_bars(np.arange(12.0).reshape(4, 3), list("wxyz"), [0.3, 0.0, 0.6], note="made up")
    assert [ax.get_title() for ax in figure.axes] == ["3\n60.0%", "1\n30.0%"]
    assert figure.get_suptitle() == "made up; 1 empty left out"
    rounding = plot.factor_bars(np.ones((4, 3)), list("wxyz"), [0.3, 1e-45, 0.6], note="made up")
    assert len(rounding.axes) == 2
    assert plot.factor_bars(np.zeros((4, 3)), list("wxyz"), np.zeros(3), note="n").get_suptitle() == "n; all are empty"


def test_panels_may_be_cut_to_what_matters() -> None:
    panel = plot.Panel("t", "y", [plot.Line([1, 2], [9.0, 0.5], "a")], ylim=(0.0, 1.0))
    whole = replace(panel, ylim=None)
    figure = plot.over_time([[panel, whole]])
    assert figure.axes[0].get_ylim() == (0.0, 1.0)
    assert figure.axes[1].get_ylim()[1] > 9.0
