"""The comparison of benchmarks.guard: what became worse is named, and noise is not taken for it."""

from __future__ import annotations

import json

import pytest
from benchmarks import guard
from benchmarks.guard_figures import Figure


def constant(value: float, better: str = "lower") -> Figure:
    return Figure([value] * 8, [1.0] * 8, better)


@pytest.fixture
def compare(tmp_path, monkeypatch, capsys):
    """A function that records a measurement, compares further ones with it, and returns exit status and text."""

    def run(recorded: Figure, *measurements: Figure) -> tuple[int, str]:
        file = tmp_path / "guard.json"
        following = iter([recorded, *measurements])
        monkeypatch.setattr(guard, "FIGURES", {"a ratio": lambda: next(following)})
        assert guard.main(["--record", "--file", str(file)]) == 0
        capsys.readouterr()
        status = guard.main(["--file", str(file)])
        assert not list(following), "not measured as often as expected"
        return status, capsys.readouterr().out

    return run


@pytest.mark.parametrize("better", ["lower", "higher"])
@pytest.mark.parametrize(("times_worse", "status"), [(1.4, 1), (1.2, 0), (0.5, 0)])
def test_what_is_more_than_the_limit_worse_is_named(compare, better, times_worse, status):
    now = constant(2 * times_worse if better == "lower" else 2 / times_worse, better)
    measurements = [now] * (1 + status)  # what looks worse is measured once more
    found, text = compare(constant(2.0, better), *measurements)
    assert found == status
    assert ("WORSE" in text) == bool(status)
    assert text.splitlines()[-1].endswith("a ratio." if status else "nothing.")


def test_the_second_measurement_counts(compare):
    status, text = compare(constant(2.0), constant(2.8), constant(2.1))
    assert status == 0
    assert "WORSE" not in text


def test_a_noisy_figure_is_not_worse(compare):
    noisy = Figure([2.0] * 4 + [4.0] * 4, [1.0] * 8)
    status, text = compare(constant(1.0), noisy, noisy)
    assert status == 0
    assert "noisy" in text
    status, text = compare(constant(1.0), noisy, constant(2.0))
    assert status == 1
    assert "noisy" not in text


def test_a_figure_is_a_ratio_of_medians():
    figure = Figure([1.0, 3.0, 50.0], [2.0, 1.0, 2.0])
    assert figure.value == 1.5


def test_a_figure_without_a_record_is_not_worse(tmp_path, monkeypatch, capsys):
    file = tmp_path / "guard.json"
    file.write_text(json.dumps({"figures": {}}))
    monkeypatch.setattr(guard, "FIGURES", {"new": lambda: constant(9.0)})
    assert guard.main(["--file", str(file)]) == 0
    assert "9.000" in capsys.readouterr().out


def test_the_file_says_which_direction_is_better(tmp_path, monkeypatch):
    file = tmp_path / "guard.json"
    monkeypatch.setattr(guard, "FIGURES", {"a": lambda: constant(2.0), "b": lambda: constant(0.5, "higher")})
    guard.main(["--record", "--file", str(file)])
    found = json.loads(file.read_text())
    assert found["figures"] == {"a": {"value": 2.0, "better": "lower"}, "b": {"value": 0.5, "better": "higher"}}
    assert found["machine"]
    assert found["date"]


def test_nothing_to_compare_with_is_an_error(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        guard.main(["--file", str(tmp_path / "none.json")])
    assert "write it with --record" in capsys.readouterr().err


def test_the_recorded_figures_are_those_measured():
    recorded = json.loads(guard.FILE.read_text())["figures"]
    assert set(recorded) == set(guard.FIGURES)
