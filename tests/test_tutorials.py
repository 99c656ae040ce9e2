"""Every tutorial runs as it is printed. Those on single cells need scanpy: `make test-scverse`."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"


def outputs(name: str) -> list[str]:
    """What the blocks of a tutorial show when they are run."""
    spec = importlib.util.spec_from_file_location("run_tutorials", DOCS / "run_tutorials.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = module.executed((DOCS / "tutorials" / f"{name}.md").read_text(), name)
    return re.findall(r"```text\n(.*?)```", page, re.DOTALL)


@pytest.mark.slow
def test_new_samples():
    shown = outputs("new_samples")
    assert 0.85 < float(re.search(r"intervals cover (\d+)%", shown[2])[1]) / 100 < 0.95
    benign, malignant = (float(x) for x in re.findall(r"-?\d+", shown[3]))
    assert malignant < benign  # as the text has it
    assert float(re.search(r"accuracy ([\d.]+)", shown[-1])[1]) > 0.93


@pytest.mark.slow
def test_how_many():
    assert "is chosen" in outputs("how_many")[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # scanpy's own
def test_single_cells():
    pytest.importorskip("scanpy", reason="make test-scverse sets it up")
    shown = outputs("single_cells")
    assert "(700, 2)" in shown[1]
    assert {"NKG7", "GNLY"} <= set(re.findall(r"[\w-]+", shown[2]))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_gene_sets():
    pytest.importorskip("scanpy", reason="make test-scverse sets it up")
    shown = outputs("gene_sets")
    assert "extended" in shown[1]
    assert "natural killers" in shown[-1]
