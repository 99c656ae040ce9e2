"""docs/architecture.md and CONTRIBUTING.md name files that exist, and the layers of the import contract."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("docs/architecture.md", "CONTRIBUTING.md")
FILE = re.compile(r"`([\w/.]+(?:\.py|\.md|\.toml|/))`")


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_are_there(page) -> None:
    named = set(FILE.findall((ROOT / page).read_text()))
    assert len(named) > 10
    missing = {name for name in named if not any((base / name).exists() for base in (ROOT, ROOT / "src/sparsefactor"))}
    assert missing == set()


def test_the_layers_on_the_page_are_those_of_the_contract() -> None:
    text = (ROOT / PAGES[0]).read_text().partition("may import whom")[2]
    lines = re.search(r"```text\n(.*?)```", text, re.DOTALL)[1].splitlines()
    shown = [set(re.split(r", | \| ", re.split(r" {3,}", line)[0].strip())) for line in lines]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [set(re.findall(r"sparsefactor\.(\w+)", line)) for line in contracts[0]["layers"]]
    place = {room: number for number, rooms in enumerate(layers) for room in rooms}
    assert set.union(*shown) == set(place) - {"__main__"}
    found = {path.stem for path in (ROOT / "src/sparsefactor").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert found - {"__init__", "__pycache__"} == set(place)  # a new module gets its place first
    order = [min(place[room] for room in rooms) for rooms in shown]
    assert order == sorted(order)
