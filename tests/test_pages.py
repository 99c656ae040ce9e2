"""Commands in README and in docs work as they are printed."""

import os
import re
import shlex
import subprocess
import venv
from pathlib import Path

import pytest
from tests.helpers.foreign import write_foreign_table
from typer.testing import CliRunner

from sparsefactor.cli import app, console

ROOT = Path(__file__).resolve().parents[1]
PAGES = ["docs/install.md", "docs/howto/csv.md", "docs/howto/verdict.md"]
LONG = ["docs/howto/verdict.md"]  # its chains go on until they agree


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def commands(page: Path) -> list[str]:
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    return [line for line in lines if line.startswith("sparsefactor ")]


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    write_foreign_table(tmp_path / "table.csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow) if page in LONG else page for page in PAGES],
)
def test_commands_of_a_page_run(page) -> None:
    lines = commands(ROOT / page)
    assert len(lines) >= 3
    for line in lines:
        done = CliRunner().invoke(app, shlex.split(line, comments=True)[1:], catch_exceptions=False)
        expected = (console.DONE, console.NOT_TRUSTED) if " sample " in line else (console.DONE,)
        assert done.exit_code in expected, (line, done.output)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("page", ["docs/howto/report.md", "docs/howto/writing_up.md"])
def test_commands_about_a_result_run(page) -> None:
    fit = ["fit", "table.csv", "--factors", "2", "--out", "fit.sf"]
    lines = [shlex.split(line, comments=True)[1:] for line in commands(ROOT / page)]
    assert lines
    for line in [fit, *lines]:
        done = CliRunner().invoke(app, line, catch_exceptions=False)
        assert done.exit_code == console.DONE, (line, done.output)


@pytest.mark.usefixtures("here")
def test_the_statement_in_docs_is_the_one_printed() -> None:
    said = CliRunner().invoke(app, ["fit", "table.csv", "--factors", "3", "--out", "fit.sf", "--trials", "2"]).stderr
    block = next(b for b in blocks(ROOT / "docs/howto/csv.md", "text") if b.startswith("Read table.csv"))
    assert said.startswith(block)


def test_every_command_is_documented() -> None:
    page = (ROOT / "docs/commands.md").read_text()
    names = [command.callback.__name__ if command.name is None else command.name for command in app.registered_commands]
    assert len(names) >= 11
    for name in names:
        assert f"`{name}" in page, name


@pytest.mark.slow
def test_readme_from_an_empty_folder_and_a_fresh_environment(tmp_path) -> None:
    """Install, the example as printed, and three commands on a foreign table."""
    readme = ROOT / "README.md"
    assert "pip install . " in readme.read_text()
    venv.create(tmp_path / "venv", with_pip=True)
    bin_folder, folder = tmp_path / "venv" / "bin", tmp_path / "empty"
    folder.mkdir()
    write_foreign_table(folder / "table.csv")
    outer = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment = {**outer, "PATH": f"{bin_folder}:{os.environ['PATH']}", "PYTHONWARNINGS": "error::ImportWarning"}

    def run(*command: str, cwd: Path = folder) -> str:
        done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(str(bin_folder / "pip"), "install", "--quiet", ".", cwd=ROOT)
    assert "sparsefactor" in run("sparsefactor", "--help")
    (folder / "example.py").write_text("\n".join(blocks(readme, "python")))
    assert "sentence" in run(str(bin_folder / "python"), "example.py")
    assert str(ROOT) not in run(str(bin_folder / "python"), "-c", "import sparsefactor; print(sparsefactor.__file__)")
    assert "converged" in run("sparsefactor", "fit", "table.csv", "--factors", "5", "--scale", "--out", "fit.sf")
    assert "item" in run("sparsefactor", "summary", "fit.sf")
    run("sparsefactor", "report", "fit.sf", "--out", "report.html")
    assert (folder / "report.html").stat().st_size > 10_000
    # An extra that is absent is named with the command that brings it, and that command is understood.
    (folder / "a.parquet").write_bytes(b"PAR1")
    done = subprocess.run(
        ["sparsefactor", "fit", "a.parquet", "-k", "2", "-o", "p.sf"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    remedy = re.search(r"pip install \"(sparsefactor\[files\])\"", done.stderr)
    assert remedy is not None, done.stderr
    assert "pyarrow" in run(str(bin_folder / "pip"), "install", "--dry-run", remedy[1])
