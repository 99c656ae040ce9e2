"""Rows belong to the engine: the methods hand them on and ask by verb, and never look into them or into Y."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import sparsefactor

PACKAGE = Path(sparsefactor.__file__).parent
ROOMS = ("vi", "gibbs", "mcmc")
ROW_FIELDS = {"mu", "s2", "eta", "within", "Z", "Y", "observed"}
OF_ROWS = {"L", "tau", "member", "base", "base_var"}  # other things have such fields too
# What has been fetched, or belongs to the user's own data, may be read.
MAY_READ = {
    "vi/result.py": {"mu", "s2", "eta", "L", "tau", "member", "within", "base", "base_var"},  # of what it fetched
    "vi/watch.py": {"mu", "eta"},
    "vi/modules.py": {"member"},
    "mcmc/chain.py": {"L", "Z", "tau", "base"},
    "mcmc/watch.py": {"L", "Z"},
    "mcmc/run_folder.py": {"Y", "observed"},  # the data's digest
}


def looks(text: str) -> set[str]:
    """The row fields that a module reads."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute):
            of_rows = isinstance(node.value, ast.Name) and node.value.id == "rows"
            of_rows |= isinstance(node.value, ast.Attribute) and node.value.attr == "rows"
            if node.attr in ROW_FIELDS or (of_rows and node.attr in OF_ROWS):
                found.add(node.attr)
    return found


FILES = sorted([PACKAGE / "start.py", *(p for room in ROOMS for p in (PACKAGE / room).glob("*.py"))])


@pytest.mark.parametrize("path", FILES, ids=str)
def test_no_module_of_the_methods_looks_into_rows(path):
    name = path.relative_to(PACKAGE).as_posix()
    extra = looks(path.read_text()) - MAY_READ.get(name, set())
    assert not extra, f"{name} reads {sorted(extra)}: ask the engine by a verb (kernels/verbs.py)"


def test_what_may_be_read_is_read():
    """The list above has no line to spare."""
    for name, fields in MAY_READ.items():
        assert looks((PACKAGE / name).read_text()) >= fields - OF_ROWS - {"within"}, name


@pytest.mark.parametrize(
    ("text", "expected"),
    [("state.rows.eta.sum()", {"eta"}), ("rows.L * 2", {"L"}), ("start.L", set()), ("data.Y[0]", {"Y"})],
)
def test_a_look_is_noticed(text, expected):
    assert looks(text) == expected
