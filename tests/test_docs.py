"""The documentation: every public name is described and in the reference, pages load nothing from elsewhere."""

from __future__ import annotations

import ast
import doctest
import enum
import importlib.util
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import sparsefactor as sf

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
WORDS = {"__version__", "plot.KINDS"}  # constants, described in the reference's own words


def public_names() -> Iterator[str]:
    for name in sf.__all__:
        value = getattr(sf, name)
        if isinstance(value, ModuleType):
            yield from (f"{name}.{inner}" for inner in value.__all__)
        else:
            yield name


def named(name: str) -> Any:
    value: Any = sf
    for part in name.split("."):
        value = getattr(value, part)
    return value


OBJECTS = sorted(set(public_names()) - WORDS)


def described(text: str) -> set[str]:
    """Names that the Parameters and Attributes of a docstring describe."""
    found: set[str] = set()
    for section in re.findall(r"^(?:Parameters|Attributes)\n-+\n(.*?)(?=^[A-Z][\w ]*\n-+$|\Z)", text, re.M | re.S):
        for line in section.splitlines():
            if line and not line.startswith(" "):
                found |= {word.strip().lstrip("*") for word in line.split(" : ")[0].split(",")}
    return found


def undescribed(value: Any) -> list[str]:
    """What of a public name has no words: its first line, its parameters, its public methods."""
    text = inspect.cleandoc(vars(value).get("__doc__") or "" if inspect.isclass(value) else value.__doc__ or "")
    lacking = [] if text and text.splitlines()[0].endswith(".") else ["a first line"]
    if inspect.isclass(value):
        for name, member in inspect.getmembers(value):
            ours = callable(member) or isinstance(member, property)
            if ours and not name.startswith("_") and not inspect.getdoc(member):
                lacking.append(name)
        if issubclass(value, Warning | enum.Enum):
            return lacking
    return lacking + sorted(set(inspect.signature(value).parameters) - described(text))


@pytest.mark.parametrize("name", OBJECTS)
def test_a_public_name_is_described(name) -> None:
    assert undescribed(named(name)) == []


def methods_of(name: str) -> dict[str, Any]:
    """A public class's own and inherited methods, but for those that only the package calls."""
    value = named(name)
    if not inspect.isclass(value) or value is sf.Prior:
        return {}
    found = inspect.getmembers(value, inspect.isfunction)
    return {own: method for own, method in found if not own.startswith("_") and "sparsefactor" in method.__module__}


@pytest.mark.parametrize("name", OBJECTS)
def test_a_public_name_has_an_example_and_its_methods_describe_what_they_take(name) -> None:
    value = named(name)
    if not (inspect.isclass(value) and issubclass(value, Warning | enum.Enum)):
        assert ">>> " in value.__doc__
    for own, method in methods_of(name).items():
        takes = set(inspect.signature(method).parameters) - {"self"}
        assert takes <= described(inspect.getdoc(method)), own


def test_a_name_without_words_is_noticed() -> None:
    def bare(X, *, tol=1):
        pass

    def half(X, *, tol=1):
        """Fit.

        Parameters
        ----------
        X : array
            The data; tol : is not described by this.

        Returns
        -------
        tol : float
        """

    assert undescribed(bare) == ["a first line", "X", "tol"]
    assert undescribed(half) == ["tol"]


def test_the_reference_holds_every_public_name_once() -> None:
    text = "\n".join(page.read_text() for page in sorted((DOCS / "reference").glob("*.md")))
    listed = re.findall(r"^::: sparsefactor\.(\S+)$", text, re.MULTILINE)
    assert sorted(listed) == OBJECTS
    for word in WORDS:
        assert f"`sf.{word}`" in text


@cache
def plotted() -> dict[str, Any]:
    """What the examples of plots are about; the package's own words say so (sparsefactor.plot)."""
    sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.2], snr=4, missing=0.1, seed=0)
    p = sf.fit_vi(sim.X, n_factors=2, n_trials=3, race=False)
    return {"sf": sf, "X": sim.X, "p": p, "mc": sf.sample(sim.X, n_factors=2, n_chains=2)}


@pytest.mark.slow
@pytest.mark.parametrize("name", OBJECTS)
def test_examples_of_a_docstring_run(name, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    known = plotted() if name.startswith("plot.") else {}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    value = named(name)
    # The finder leaves out what a class inherits, such as the questions that both posteriors answer.
    parts = (
        [c for c in value.__mro__ if c.__module__.startswith("sparsefactor.")] if inspect.isclass(value) else [value]
    )
    for part in parts:
        for test in doctest.DocTestFinder().find(part, name, globs=dict(known)):
            runner.run(test)
    assert runner.failures == 0


def section(name: str) -> str:
    """The lines of mkdocs.yml below a top-level key."""
    found = re.search(rf"^{name}:\n((?:[ #].*\n)+)", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert found is not None, f"mkdocs.yml has no {name}"
    return found[1]


def test_the_theme_searches_has_a_dark_mode_and_loads_nothing_from_elsewhere() -> None:
    theme = section("theme")
    assert "  name: material\n" in theme
    assert "  font: false\n" in theme  # else Google's are fetched
    assert "scheme: slate" in theme
    assert "  - search\n" in section("plugins")
    # A repository would have the theme ask the API of its forge; analytics is a third party by itself.
    text = (ROOT / "mkdocs.yml").read_text()
    assert not re.search(r"https?:|repo_url|analytics:|extra_javascript", text)
    for name in re.findall(r"  - (\S+)\n", section("extra_css")):
        assert not re.search(r"url\(|@import|https?:", (DOCS / name).read_text())


LOADED = re.compile(r"!\[[^]]*\]\(https?:|<(?:script|img|link|iframe)[^>]*https?:|^```mermaid", re.MULTILINE)


@pytest.mark.parametrize("bad", ["![a](https://b/c.png)", '<script src="http://a"></script>', "```mermaid\n"])
def test_what_would_be_loaded_from_elsewhere_is_noticed(bad) -> None:
    assert LOADED.search(bad)


def test_pages_load_nothing_from_elsewhere() -> None:
    for page in DOCS.rglob("*.md"):
        assert not LOADED.search(page.read_text()), page


def test_every_page_has_its_place_in_the_navigation() -> None:
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert sorted(re.findall(r"[\w/]+\.md", section("nav"))) == sorted(pages)


def test_two_screenshots_of_the_report_stand_on_its_page() -> None:
    page = DOCS / "howto" / "report.md"
    shown = re.findall(r"!\[[^]]+\]\((../images/report[^)]*\.png)\)", page.read_text())
    assert len(shown) == 2
    for name in shown:
        assert (page.parent / name).read_bytes().startswith(b"\x89PNG")


RUN = [page for page in sorted(DOCS.rglob("*.md")) if page.read_text().startswith("---\nrun: true\n---\n")]
RUN.append(DOCS / "tutorials" / "first_fit.md")


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_a_page_that_runs_at_build_runs(page) -> None:
    spec = importlib.util.spec_from_file_location("run_tutorials", DOCS / "run_tutorials.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.executed(page.read_text(), page.stem).count("```text\n") >= 2


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.relative_to(DOCS).as_posix())
def test_python_on_a_page_names_what_exists(page) -> None:
    """Blocks parse, and every sf.name in them is public; those of pages that run are run at build."""
    for block in python_blocks(page):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "sf":
                assert node.attr in sf.__all__
