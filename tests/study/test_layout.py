"""The study uses public names of the package, and the package does not know the study."""

import ast
from pathlib import Path

import pytest

import sparsefactor as sf

ROOT = Path(__file__).resolve().parents[2]


def private_names(source: str) -> set[str]:
    """Modules of the package that are imported beside `sparsefactor` and `sparsefactor.plot`, and hidden names used."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("sparsefactor.")}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sparsefactor"):
            found |= {node.module} - {"sparsefactor.plot"}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "sf":
            found |= {node.attr} - {*sf.__all__, "__file__"}
    return found


@pytest.mark.parametrize("file", sorted((ROOT / "study").glob("*.py")), ids=lambda file: file.name)
def test_the_study_uses_public_names(file) -> None:
    assert private_names(file.read_text()) == set()


def test_private_names_are_noticed() -> None:
    assert private_names("from sparsefactor.vi import fit\nimport sparsefactor.engine\nsf.engine") == {
        "sparsefactor.vi", "sparsefactor.engine", "engine",
    }  # fmt: skip


def test_the_package_does_not_import_the_study() -> None:
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            assert not [name for name in names if name.split(".")[0] == "study"], file
