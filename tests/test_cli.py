"""The command line, from simulated data to a report."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import sparsefactor as sf
from sparsefactor.cli import app

RUNNER = CliRunner()


def run(*arguments: object) -> str:
    done = RUNNER.invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def result(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    table = folder / "X.csv"
    table.write_text(
        "name,a,b,c,d\n" + "\n".join(f"s{j},{j},{-j},{(j * 7) % 5},{(j * 3) % 4}" for j in range(1, 9)) + "\n"
    )
    assert "ELBO" in run("fit", table, "--factors", 2, "--out", folder / "p.sf", "--trials", 2)
    return folder / "p.sf"


def test_fit_keeps_names(result) -> None:
    p = sf.load(result)
    assert list(p.feature_names) == ["a", "b", "c", "d"]
    assert p.sample_names[0] == "s1"
    assert p.prior.learns_inclusion


def test_summary_lists_factors(result) -> None:
    text = run("summary", result)
    assert "ELBO" in text
    assert len(text.split("strongest")[1].strip().splitlines()) == 2


def test_plot_and_report(result, tmp_path) -> None:
    run("plot", result, "--out", tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert str(tmp_path / "r.html") in run("report", result, "--out", tmp_path / "r.html")
    assert "<!doctype html>" in (tmp_path / "r.html").read_text()


def test_simulate_then_sample(tmp_path) -> None:
    run("simulate", "--out", tmp_path / "X.csv", "--snr", 5)
    assert (tmp_path / "X.truth.npz").exists()
    options = ("--factors", 2, "--chains", 2, "--warmup", 2, "--draws", 3, "--inclusion", 0.2)
    run("sample", tmp_path / "X.csv", *options, "--out", tmp_path / "p.sf")
    p = sf.load(tmp_path / "p.sf")
    assert p.loadings_mean.shape == (800, 2)
    run("sample", tmp_path / "X.csv", *options, "--out", tmp_path / "q.sf", "--transpose")
    assert sf.load(tmp_path / "q.sf").loadings_mean.shape == (100, 2)


def test_modules(tmp_path) -> None:
    run("simulate", "--out", tmp_path / "X.csv", "--snr", 5)
    options = ("--factors", 6, "--modules", 4, "--trials", 2)
    run("fit", tmp_path / "X.csv", *options, "--out", tmp_path / "p.sf")
    p = sf.load(tmp_path / "p.sf")
    assert p.prior.n_modules == 4
    assert p.module_prob.shape == (800, 4)
    assert "learnt, up to 4 modules" in run("summary", tmp_path / "p.sf")
    run("report", tmp_path / "p.sf", "--out", tmp_path / "r.html")
    assert "Modules of features" in (tmp_path / "r.html").read_text()


def test_quick_and_full_exclude_each_other() -> None:
    done = RUNNER.invoke(app, ["reproduce", "simulated", "--quick", "--full"])
    assert done.exit_code == 2
    assert "exclude each other" in done.output


def test_errors_end_in_one_line(tmp_path) -> None:
    arguments = [sys.executable, "-m", "sparsefactor.cli", "reproduce", "gtex", "--data", str(tmp_path / "none.csv")]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: data must be a file")
    assert len(done.stderr.strip().splitlines()) == 1


def test_benchmark_prints_milliseconds() -> None:
    text = run("benchmark", "--features", 40, "--samples", 12, "--factors", 2, "--sweeps", 3)
    assert text.count(" ms") == 2
