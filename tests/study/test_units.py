"""Units of the study: cached on disk under what decides them, run by one process or several."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from study import simulated
from study import units as units_module
from study.units import Cache, Progress, Unit, run_units

import sparsefactor as sf


def work(settings: dict, log: str) -> tuple[dict, dict]:
    with Path(log).open("a") as file:
        file.write(f"{settings['n']}\n")
    if settings["n"] == 2 and not Path(log).with_name("healed").exists():
        raise RuntimeError("stopped")
    return {"square": settings["n"] ** 2}, {"a": np.arange(settings["n"])}


def test_a_stopped_study_resumes(tmp_path) -> None:
    log = tmp_path / "log"
    units = [Unit(work, {"n": n}, {"log": str(log)}) for n in (1, 2, 3)]
    cache = Cache(tmp_path / "cache")
    with pytest.raises(RuntimeError, match="stopped"):
        run_units(units, cache, 1)
    (tmp_path / "healed").touch()
    found = run_units(units, cache, 1)
    assert [facts["square"] for facts, _ in found] == [1, 4, 9]
    assert log.read_text().split() == ["1", "2", "2", "3"]  # the first was not made again
    np.testing.assert_array_equal(run_units(units, cache, 1)[2][1]["a"], [0, 1, 2])
    assert log.read_text().split() == ["1", "2", "2", "3"]


def test_other_settings_are_other_units(tmp_path) -> None:
    one, other = Unit(work, {"n": 1}, {"log": "x"}), Unit(work, {"n": 1, "seed": 1}, {"log": "x"})
    assert one.key != other.key
    assert one.key == Unit(work, {"n": 1, "title": "a title"}, {"log": "elsewhere"}).key


def test_changed_defaults_are_other_units(monkeypatch) -> None:
    before = {unit.key for unit in simulated.plan(simulated.LEVELS["quick"])}
    monkeypatch.setitem(sf.sample.__wrapped__.__kwdefaults__, "moves", ("scale",))
    after = {unit.key for unit in simulated.plan(simulated.LEVELS["quick"])}
    assert len(before - after) == 3  # the default chains, at each snr


def test_other_code_makes_other_units(monkeypatch) -> None:
    unit = Unit(work, {"n": 1})
    before = unit.key
    assert len(units_module.code_digest()) == 24
    monkeypatch.setattr(units_module, "code_digest", lambda: "other")
    assert unit.key != before


def test_a_damaged_file_is_replaced(tmp_path) -> None:
    cache = Cache(tmp_path / "cache")
    unit = Unit(work, {"n": 1}, {"log": str(tmp_path / "log")})
    run_units([unit], cache, 1)
    cache.path(unit.key).write_bytes(b"half a file")
    assert run_units([unit], cache, 1)[0][0] == {"square": 1}
    assert cache.get(unit.key)[0] == {"square": 1}


WORK = """
def square(settings):
    return {"square": settings["n"] ** 2}, {}
"""


@pytest.mark.parametrize("jobs", [1, 2])
def test_progress_is_reported_for_each_unit(tmp_path, monkeypatch, jobs) -> None:
    (tmp_path / "work_of_units.py").write_text(WORK)  # a module that other processes find
    monkeypatch.syspath_prepend(tmp_path)
    square = importlib.import_module("work_of_units").square
    units = [Unit(square, {"n": n, "title": f"unit {n}"}, cost=n) for n in (1, 2, 3)]
    reports: list[Progress] = []
    found = run_units(units, Cache(tmp_path / "cache"), jobs, reports.append)
    assert [facts["square"] for facts, _ in found] == [1, 4, 9]
    assert [report.done for report in reports] == [0, 1, 2, 3]
    assert {report.title for report in reports} == {"started", "unit 1", "unit 2", "unit 3"}
