"""What the code imports is what pyproject.toml installs; what only an extra brings may be absent."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparsefactor.errors import needs

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Import names that differ from the name on the package index, where the code uses one.
MODULE_OF = {"google-crc32c": "google_crc32c", "scikit-learn": "sklearn"}


def modules_of(requirements: list[str]) -> set[str]:
    names = (re.match(r"[A-Za-z0-9_-]+", requirement)[0] for requirement in requirements)
    return {MODULE_OF.get(name, name) for name in names}


CORE = modules_of(PROJECT["dependencies"]) | {"llvmlite"}  # a part of Numba
EXTRA = modules_of([r for extra in PROJECT["optional-dependencies"].values() for r in extra])


def foreign_imports(tree: ast.AST, guarded: bool = False) -> Iterator[tuple[str, bool]]:
    """Every third-party module imported, and whether `except ImportError` stands by; type checking does not count."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Try):
            caught = any(h.type is not None and "ImportError" in ast.unparse(h.type) for h in node.handlers)
            for inner in node.body:
                yield from foreign_imports(ast.Module([inner], []), guarded or caught)
            for part in (*node.handlers, *node.orelse, *node.finalbody):
                yield from foreign_imports(part, guarded)
        elif isinstance(node, ast.Import):
            yield from ((name.name.partition(".")[0], guarded) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").partition(".")[0], guarded
        else:
            yield from foreign_imports(node, guarded)


def unmet(source: str) -> set[str]:
    """Modules that the source imports although a plain installation may lack them."""
    found = set()
    for module, guarded in foreign_imports(ast.parse(source)):
        ours = module == "sparsefactor" or module in sys.stdlib_module_names or module in CORE
        if not ours and not (guarded and module in EXTRA):
            found.add(module)
    return found


@pytest.mark.parametrize(
    "file", sorted((ROOT / "src").rglob("*.py")), ids=lambda file: str(file.relative_to(ROOT / "src" / "sparsefactor"))
)
def test_imports_are_installed_or_guarded(file: Path) -> None:
    assert unmet(file.read_text()) == set()


def test_an_unguarded_extra_and_an_unknown_library_are_seen() -> None:
    assert unmet("import pyarrow") == {"pyarrow"}
    assert unmet("try:\n    import pyarrow\nexcept ImportError:\n    pass") == set()
    assert unmet("try:\n    import requests\nexcept ImportError:\n    pass") == {"requests"}
    assert unmet("def f():\n    import pandas, numpy.linalg") == set()


def test_an_absent_extra_is_one_line_with_the_command() -> None:
    text = str(needs("reading a.rds", "rdata", "files", ImportError("No module named 'rdata'")))
    assert text.endswith('install it with: pip install "sparsefactor[files]"')
    assert "\n" not in text
    assert "files" in PROJECT["optional-dependencies"]
