"""`make demo`: what it prints and writes, and that it says something from the beginning."""

from study.__main__ import main

import sparsefactor as sf


def test_the_demo_prints_short_tables_and_writes_a_report(tmp_path, capsys) -> None:
    for _ in range(2):  # again in the same folder
        main(["demo", "--out", str(tmp_path / "demo")])
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert len(lines) < 2 * 24
    assert max(len(line) for line in lines) < 120
    assert lines[-1] == f"Report: {tmp_path / 'demo' / 'report.html'}"
    assert "verbal" in out
    assert "accuracy of Z" in out
    assert err.startswith("Fitting 24 ability tests")
    assert "<html" in (tmp_path / "demo" / "report.html").read_text()
    assert (tmp_path / "demo" / "heatmap.png").read_bytes().startswith(b"\x89PNG")
    p = sf.load(tmp_path / "demo" / "abilities.sf")
    assert p.loadings_mean.shape == (24, 5)
    assert len(sf.read_table(tmp_path / "demo" / "abilities.csv")) == 301
