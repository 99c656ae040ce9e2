"""The direction of imports, and what a bare `import sparsefactor` costs."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {
    "jax",
    "dask",
    "matplotlib",
    "anndata",
    "sklearn",
    "numba",
    "pandas",
    "rich",
    "tqdm",
    "typer",
    "xarray",
    "zarr",
}
IMPORT_SECONDS = 1.0  # of the processor: others on the machine do not count

PROBE = """
import json, sys, time
start = time.process_time()
import {modules}
seconds = time.process_time() - start
print(json.dumps({{"seconds": seconds, "modules": sorted(sys.modules)}}))
"""

# One for each contract; all are planted at once.
VIOLATIONS = {
    "The house": ("vi", "sparsefactor.mcmc"),
    "A posterior, and what is computed": ("posterior", "sparsefactor.vi"),
    "Inference does not import the simulator": ("mcmc", "sparsefactor.simulate"),
    "Storage knows posteriors only": ("storage", "sparsefactor.relabel"),
    "Optional libraries": ("model", "matplotlib"),
}


def probe_import(modules: str) -> dict:
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(modules=modules)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def heavy_in(loaded: list[str]) -> set[str]:
    return {name.partition(".")[0] for name in loaded} & HEAVY


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
    return package / name / "__init__.py" if (package / name).is_dir() else package / f"{name}.py"


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


def test_planted_violations_are_caught(project_copy: Path) -> None:
    package = project_copy / "src" / "sparsefactor"
    for importer, imported in VIOLATIONS.values():
        with module_file(package, importer).open("a") as file:
            file.write(f"\nimport {imported}\n")
    done = lint_imports(project_copy)
    assert done.returncode == 1, done.stdout + done.stderr
    summary = done.stdout.partition("Broken contracts")[0]
    for contract, (importer, imported) in VIOLATIONS.items():
        assert re.search(rf"^{contract}.* BROKEN", summary, re.MULTILINE), done.stdout
        assert f"sparsefactor.{importer} -> {imported}" in done.stdout


def test_every_contract_has_a_planted_violation() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert len(contracts) == len(VIOLATIONS)


def test_bare_import_is_light_and_quick() -> None:
    # The best of three: a busy machine slows some runs, a slow import slows all.
    probes = [probe_import("sparsefactor") for _ in range(3)]
    assert heavy_in(probes[0]["modules"]) == set()
    assert min(probe["seconds"] for probe in probes) < IMPORT_SECONDS


def test_probe_sees_a_heavy_library() -> None:
    assert heavy_in(probe_import("sparsefactor, matplotlib")["modules"]) == {"matplotlib"}


def test_all_that_may_decide_a_draw_is_in_the_digest_that_guards_a_resume() -> None:
    """What inference imports either decides draws, or is named here as what does not."""
    import grimp

    from sparsefactor.version import DECIDING

    neutral = {
        "annotated", "association", "atomic", "checks", "computed", "containers", "diagnostics", "errors", "executors",
        "export", "frames", "hdf5", "mofa", "plot", "report", "table_files",
        "heywood", "names", "notices", "outliers",
        "parallel_analysis", "posterior", "progress", "questions",
        "record", "standardized", "storage", "version", "words",
    }  # fmt: skip
    graph = grimp.build_graph("sparsefactor", exclude_type_checking_imports=True)
    imported = graph.find_upstream_modules("sparsefactor.mcmc", as_package=True) | {"sparsefactor.mcmc"}
    rooms = {name.split(".")[1] for name in imported if name.startswith("sparsefactor.")}
    assert rooms - neutral == set(DECIDING)
