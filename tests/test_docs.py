"""The documentation: every public name is described and in the reference, pages load nothing from elsewhere."""

from __future__ import annotations

import ast
import doctest
import enum
import importlib.util
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import sparsefactor as sf

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
WORDS = {"__version__", "plot.KINDS"}  # constants, described in the reference's own words
# Functions with the name of a module, which griffe would show instead.
PUBLIC = {
    "mcmc.sample.sample": "sample",
    "plot.heatmap.heatmap": "plot.heatmap",
    "relabel.public.relabel": "relabel",
    "simulate.draw.simulate": "simulate",
}


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
    assert sorted(PUBLIC.get(name, name) for name in listed) == OBJECTS
    for word in WORDS:
        assert f"`sf.{word}`" in text
    for name in listed:  # no function is hidden by a module of its name
        value = named(PUBLIC.get(name, name))
        assert name in PUBLIC or value.__name__ not in value.__module__.split("."), name


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


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_a_page_that_runs_at_build_runs(page) -> None:
    spec = importlib.util.spec_from_file_location("run_tutorials", DOCS / "run_tutorials.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shown = module.executed(page.read_text(), page.stem)
    assert shown.count("```text\n") + shown.count("](data:image/png") >= 1


LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]+))?\)")
PAGES = sorted(DOCS.rglob("*.md"))


def anchors(text: str) -> set[str]:
    """The identifiers that Markdown gives to headings."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


def broken_links(text: str, page: Path) -> list[str]:
    broken = []
    for target, anchor in LINK.findall(text):
        if "://" in target:
            continue
        goal = (page.parent / target).resolve() if target else page
        if not goal.is_file() or (anchor and goal.suffix == ".md" and anchor not in anchors(goal.read_text())):
            broken.append(f"{target}#{anchor}")
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_links_between_pages_resolve(page) -> None:
    assert broken_links(page.read_text(), page) == []


def test_a_broken_link_is_noticed() -> None:
    text = "[a](index.md) [b](index.md#names-and-shapes) [c](absent.md) [d](index.md#absent) [e](https://a.b/c.md)"
    assert broken_links(text, DOCS / "faq.md") == ["absent.md#", "index.md#absent"]


DEFAULTS = re.compile(r"^\| `(\w+)` \| `([^`]+)`", re.MULTILINE)


def stated_defaults(text: str) -> Iterator[tuple[str, str, Any]]:
    """Function, setting and default of the rows "| `setting` | `default` |" below a heading "## `function`"."""
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        functions = re.findall(r"`(\w+)`", part.splitlines()[0])
        for setting, default in DEFAULTS.findall(part):
            yield from ((function, setting, ast.literal_eval(default)) for function in functions)


def test_defaults_in_the_tables_of_settings_are_those_of_the_functions() -> None:
    stated = list(stated_defaults((DOCS / "howto" / "settings.md").read_text()))
    assert len(stated) >= 20
    for function, setting, default in stated:
        # choose_n_factors hands its further settings to compare.
        owner = sf.compare if function == "choose_n_factors" else getattr(sf, function)
        real = inspect.signature(owner).parameters[setting].default
        assert (real, type(real)) == (default, type(default)), f"{function}({setting}=)"
    assert sf.Prior(n_factors=2).inclusion == sf.Beta(1, 1)  # what the table says of None


def test_a_wrong_default_is_noticed() -> None:
    page = "# A\n\n## `fit_vi`\n\n| setting | default |\n|---|---|\n| `scale` | `True`: yes | `x` |\n"
    assert list(stated_defaults(page)) == [("fit_vi", "scale", True)]
    assert inspect.signature(sf.fit_vi).parameters["scale"].default is not True


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["howto/larger_than_memory.md", "howto/cluster.md"])
def test_a_block_prints_what_the_page_shows(name, tmp_path) -> None:
    """Pages whose blocks need processes or files of their own are not run at build."""
    text = (DOCS / name).read_text()
    (shown,) = re.findall(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "block.py").write_text(python_blocks(DOCS / name)[0])
    done = subprocess.run([sys.executable, "block.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout == shown, done.stderr


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sparsefactor.SamplingWarning", "ignore::sparsefactor.ConvergenceWarning")
@pytest.mark.parametrize("name", ["explanation/definitions.md", "explanation/model.md", "howto/long_runs.md"])
def test_blocks_about_some_data_run(name, tmp_path, monkeypatch) -> None:
    """Pages that speak of X, and of results p and mc, without making them."""
    monkeypatch.chdir(tmp_path)
    known = {**plotted(), "matrix": np.full((40, 2), 0.5)}
    for block in python_blocks(DOCS / name):
        exec(compile(block, name, "exec"), known)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_python_on_a_page_names_what_exists(page) -> None:
    """Blocks parse, and every sf.name in them is public; those of pages that run are run at build."""
    for block in python_blocks(page):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "sf":
                assert node.attr in sf.__all__
