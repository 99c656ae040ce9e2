"""The direction of imports, and what a bare `import sparsefactor` costs."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("jax", "dask", "matplotlib", "anndata", "sklearn", "numba", "pandas", "rich", "typer", "xarray", "zarr")
IMPORT_SECONDS = 1.0

PROBE = """
import json, sys, time
start = time.perf_counter()
import {modules}
seconds = time.perf_counter() - start
print(json.dumps({{"seconds": seconds, "modules": sorted(sys.modules)}}))
"""

VIOLATIONS = [
    ("data", "model"),
    ("data", "vi"),
    ("model", "kernels"),
    ("simulate", "kernels"),
    ("kernels", "engine"),
    ("kernels", "simulate"),
    ("engine", "start"),
    ("start", "engine"),
    ("start", "posterior"),
    ("vi", "mcmc"),
    ("relabel", "vi"),
    ("mcmc", "simulate"),
    ("posterior", "kernels"),
    ("posterior", "vi"),
    ("relabel", "mcmc"),
    ("diagnostics", "mcmc"),
    ("mcmc", "metrics"),
    ("metrics", "start"),
    ("storage", "relabel"),
    ("storage", "engine"),
    ("vi", "plot"),
    ("metrics", "estimator"),
    ("plot", "cli"),
]


def probe_import(modules: str) -> dict:
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(modules=modules)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def heavy_in(loaded: list[str]) -> set[str]:
    return {name.partition(".")[0] for name in loaded} & set(HEAVY)


def lint_imports(project: Path) -> subprocess.CompletedProcess:
    """Run the contracts of `project`/pyproject.toml on `project`/src, ahead of any installed copy."""
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project / "src"), "COLUMNS": "300"},
        capture_output=True,
        text=True,
    )


def module_file(package: Path, name: str) -> Path:
    """The file of module `name`, made empty where the module does not exist."""
    file = package / name / "__init__.py" if (package / name).is_dir() else package / f"{name}.py"
    file.touch()
    return file


@pytest.fixture
def project_copy(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_contracts_are_kept() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 broken" in done.stdout


def test_contracts_are_kept_in_an_untouched_copy(project_copy: Path) -> None:
    done = lint_imports(project_copy)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("importer", "imported"), VIOLATIONS)
def test_planted_violation_is_caught(project_copy: Path, importer: str, imported: str) -> None:
    package = project_copy / "src" / "sparsefactor"
    module_file(package, imported)
    with module_file(package, importer).open("a") as file:
        file.write(f"\nimport sparsefactor.{imported}\n")
    done = lint_imports(project_copy)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"sparsefactor.{importer} -> sparsefactor.{imported}" in done.stdout


def test_planted_optional_library_is_caught(project_copy: Path) -> None:
    file = module_file(project_copy / "src" / "sparsefactor", "model")
    file.write_text(file.read_text() + "\nimport matplotlib.pyplot\n")
    done = lint_imports(project_copy)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "sparsefactor.model -> matplotlib" in done.stdout


def test_bare_import_is_light_and_quick() -> None:
    # The best of three: a busy machine slows some runs, a slow import slows all.
    probes = [probe_import("sparsefactor") for _ in range(3)]
    assert heavy_in(probes[0]["modules"]) == set()
    assert min(probe["seconds"] for probe in probes) < IMPORT_SECONDS


def test_probe_sees_a_heavy_library() -> None:
    assert heavy_in(probe_import("sparsefactor, matplotlib")["modules"]) == {"matplotlib"}
