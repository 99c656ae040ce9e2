"""The study on simulated data: its folder of results, and claims that follow from the numbers."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from study import report_simulated, simulated
from study.__main__ import main
from study.claims import claims, seconds_to_settle
from study.units import Cache
from tests.helpers.browser import Browser, find_chromium

import sparsefactor as sf

TINY = {"n_trials": 2, "max_iter": 20, "n_chains": 2, "n_sweeps": 20, "warmup_plain": 5, "warmup_default": 5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("study")
    level = replace(simulated.LEVELS["quick"], **TINY)
    results = simulated.run(level, Cache(out / "cache"), 1)
    assert report_simulated.write(results, out, "the command", 1.0) == out / "report.html"
    return out


def test_study_writes_what_it_promises(folder) -> None:
    for name in ("figure1_inclusion", "figure2_over_time", "figure3_noise"):
        assert (folder / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (folder / "figures" / f"{name}.svg").read_text()[:2000]
    record = json.loads((folder / "run.json").read_text())
    assert record["settings"]["seed"] == 0
    assert record["versions"]["sparsefactor"] == sf.__version__
    lines = (folder / "runs.csv").read_text().splitlines()
    assert len(lines) == 1 + 3 * (2 + 2 + 2 + 2)
    assert "Smaller than the paper" in (folder / "report.html").read_text()


@pytest.mark.skipif(find_chromium() is None and "CI" not in os.environ, reason="no Chromium on this machine")
def test_study_page_opens_and_fits(folder) -> None:
    with Browser(find_chromium() or "chromium") as browser:
        for width in (1200, 360):
            browser.open(folder / "report.html", width=width, ready="document.readyState == 'complete'")
            assert browser.problems == []
            assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.run("document.querySelector('tbody').rows.length") == 9  # claims
        assert browser.run("[...document.images].filter(image => image.naturalWidth > 0).length") == 3


def test_claims_are_undecided_where_trials_were_stopped(folder) -> None:
    text = (folder / "claims.csv").read_text()
    assert "not decided: 0 of 2 converged within 20 iterations" in text


def results_of(*, chains: dict[float, list[float]], elbos: list[float]) -> simulated.Results:
    """Results made up: for each snr, the chains' correlations with factor 1; all else is perfect."""
    level = replace(simulated.LEVELS["quick"], n_chains=len(chains[1.0]))
    runs = []
    for snr in level.snrs:
        for method in simulated.METHODS:
            numbers = elbos if method.startswith("vi") else chains[snr]
            for number, value in enumerate(numbers):
                first = value if method.startswith("mcmc") else 0.95
                point = dict.fromkeys(simulated.MEASURES, 0.5) | {"seconds": 1.0 + number, "sweep": 1}
                facts = {"points": [point], "correlations": [first, 0.99], "seconds": 2.0, "sweeps": 9}
                if method.startswith("vi"):
                    facts |= {"elbo": value, "status": "converged"}
                runs.append(simulated.Run(snr, method, number, facts, {}))
    return simulated.Results(level, runs, {}, {})


def test_claims_count_the_chains_that_fail() -> None:
    results = results_of(chains={1.0: [0.95, 0.2], 5.0: [0.95, 0.2], 25.0: [0.95, 0.95]}, elbos=[-1.0, -9.0])
    found = {claim.claim: claim for claim in claims(results)}
    fails = found["Some MCMC chains fail to find the structure (snr 5)"]
    assert fails.plain_holds
    assert fails.plain.startswith("1 of 2 chains")
    assert found["At snr 1 some chains, not all, find factor 1"].plain_holds
    assert not found["At snr 1 no VI restart finds factor 1, the sparsest"].plain_holds
    assert found["All VI restarts converge, to different optima (snr 5)"].plain_holds
    healthy = results_of(chains={1.0: [0.95, 0.95], 5.0: [0.95, 0.95], 25.0: [0.95, 0.95]}, elbos=[-1.0, -1.0])
    found = {claim.claim: claim for claim in claims(healthy)}
    assert not found["Some MCMC chains fail to find the structure (snr 5)"].plain_holds
    assert not found["All VI restarts converge, to different optima (snr 5)"].plain_holds


def test_settled_is_when_a_measure_last_came_close() -> None:
    points = [{"seconds": s, "z_accuracy": a} for s, a in ((1, 0.9), (2, 0.5), (4, 0.895), (8, 0.9))]
    assert seconds_to_settle(simulated.Run(1.0, "mcmc_plain", 0, {"points": points}, {})) == 4


def test_the_command_prints_a_table_and_the_report(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setitem(simulated.LEVELS, "quick", replace(simulated.LEVELS["quick"], **TINY))
    main(["simulated", "--quick", "--out", str(tmp_path / "s")])
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == f"Report: {tmp_path / 's' / 'report.html'}"
    assert len(out.splitlines()) == 1 + 3 * 5 + 2
    assert err.splitlines()[-1].startswith(" 12 of 12 fits, ")
    with pytest.raises(SystemExit):
        main(["simulated", "--quick", "--full"])
    assert "not allowed with argument" in capsys.readouterr().err
