"""The report page, opened in a real headless Chromium where there is one (in CI there is)."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.browser import Browser, find_chromium

import sparsefactor as sf
from sparsefactor.report import posterior_page, render, sections, write_page
from sparsefactor.report.posterior import factor_rows

CHROMIUM = find_chromium()
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None and "CI" not in os.environ, reason="no Chromium on this machine; CI installs one"
)
NASTY = "</script><img src=x onerror=\"document.title='taken'\">&amp;'\""
WIDE, NARROW = 1200, 360


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    import pandas as pd

    sim = sf.simulate(n_features=60, n_samples=30, inclusion=[0.3, 0.5], snr=5, seed=1)
    names = [NASTY, *(f"gene {i}" for i in range(1, 60))]
    X = pd.DataFrame(sim.X, columns=names, index=[f"sample <{j}>" for j in range(30)])
    p = sf.fit_vi(X, sf.Prior(n_factors=2, inclusion=0.3), n_trials=3)
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_page(path, posterior_page(p, title="A <b>bold</b> title"))
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert CHROMIUM is not None, "CI must have a Chromium; install Debian's package chromium"
    with Browser(CHROMIUM) as opened:
        yield opened


def column(browser: Browser, heading: str, number: int) -> list[str]:
    """The texts of a column of the table in the section with this heading."""
    return browser.run(
        f"[...[...document.querySelectorAll('section')].find(s => s.querySelector('h2').textContent === {heading!r})"
        f".querySelectorAll('tbody tr')].map(r => r.children[{number}].textContent)"
    )


def click(browser: Browser, heading: str, name: str) -> None:
    browser.run(
        f"[...[...document.querySelectorAll('section')].find(s => s.querySelector('h2').textContent === {heading!r})"
        f".querySelectorAll('th button')].find(b => b.textContent === {name!r}).click()"
    )


FEATURES = "Factors and their features"


def test_page_needs_no_network(page) -> None:
    text = page.read_text()
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text
    assert "default-src 'none'" in text


@needs_chromium
def test_opens_without_console_errors(browser, page) -> None:
    browser.open(page)
    assert browser.problems == []
    assert browser.run("document.querySelectorAll('section').length") == 6
    assert browser.run("document.title") == "A <b>bold</b> title"


@needs_chromium
def test_a_broken_page_is_noticed(browser, tmp_path) -> None:
    broken = tmp_path / "broken.html"
    broken.write_text(render("t", "s", []).replace('document.body.dataset.ready = "yes";', "nothing.at.all;"))
    with pytest.raises(AssertionError, match="did not become ready"):
        browser.open(broken)
    assert browser.problems
    browser.problems.clear()


@needs_chromium
def test_names_are_text(browser, page) -> None:
    browser.open(page)
    browser.run("document.querySelector('input[type=search]').value = 'onerror'")
    browser.run("document.querySelector('input[type=search]').dispatchEvent(new Event('input'))")
    assert column(browser, FEATURES, 0) == [NASTY]
    assert browser.run("document.querySelectorAll('main img').length") == 0
    assert browser.run("document.querySelector('.bars span').textContent") == "sample <0>"


@needs_chromium
def test_search_finds_a_feature(browser, page) -> None:
    browser.open(page)
    assert len(column(browser, FEATURES, 0)) == 25
    browser.run("document.querySelector('input[type=search]').value = 'GENE 42'")
    browser.run("document.querySelector('input[type=search]').dispatchEvent(new Event('input'))")
    assert column(browser, FEATURES, 0) == ["gene 42"]


@needs_chromium
def test_sorting_sorts(browser, page) -> None:
    browser.open(page)
    sizes = [abs(float(value)) for value in column(browser, FEATURES, 1)]
    assert sizes == sorted(sizes, reverse=True)
    click(browser, FEATURES, "feature")
    names = column(browser, FEATURES, 0)
    assert names[1:4] == ["gene 1", "gene 2", "gene 3"]  # numbers in names count as numbers
    click(browser, FEATURES, "feature")
    assert column(browser, FEATURES, 0)[0] == "gene 59"
    click(browser, FEATURES, "loading")
    click(browser, FEATURES, "loading")
    sizes = [abs(float(value)) for value in column(browser, FEATURES, 1)]
    assert sizes == sorted(sizes)


@needs_chromium
def test_fits_a_narrow_screen(browser, page) -> None:
    browser.open(page, width=NARROW, height=700)
    assert browser.run("document.documentElement.scrollWidth") <= NARROW
    assert browser.problems == []
    browser.run("document.querySelector('main').append(Object.assign(document.createElement('div'), {id: 'wide'}))")
    browser.run("document.getElementById('wide').style = 'width: 900px; height: 9px'")  # the check can fail
    assert browser.run("document.documentElement.scrollWidth") > NARROW


@needs_chromium
def test_lines_can_be_hovered_and_zoomed(browser, page) -> None:
    browser.open(page, width=WIDE)
    svg = "document.querySelector('svg.chart')"
    browser.run(f"{svg}.scrollIntoView({{block: 'center'}})")
    box = browser.run(f"(r => [r.left, r.top, r.width, r.height])({svg}.getBoundingClientRect())")
    spot = browser.run(
        f"(r => [r.left + r.width / 2, r.top + r.height / 2])({svg}.querySelector('circle').getBoundingClientRect())"
    )
    browser.mouse("mouseMoved", *spot)
    assert "winning trial" in browser.run("document.querySelector('.tip').textContent")
    labels = f"[...{svg}.querySelectorAll('text')].map(t => t.textContent).join(' ')"
    before = browser.run(labels)
    x, y, width, height = box
    browser.mouse("mousePressed", x + 0.5 * width, y + 0.2 * height)
    browser.mouse("mouseMoved", x + 0.7 * width, y + 0.5 * height)
    browser.mouse("mouseReleased", x + 0.7 * width, y + 0.5 * height)
    assert browser.run(labels) != before
    browser.run("[...document.querySelectorAll('button')].find(b => b.textContent === 'reset zoom').click()")
    assert browser.run(labels) == before


def test_heatmap_averages_many_rows() -> None:
    values = np.zeros((1601, 1))
    values[0] = 1.0
    (panel,) = sections.heatmaps("t", {"a": values})["panels"]
    assert (panel["rows"], panel["per"]) == (534, 3)
    import base64

    assert base64.b64decode(panel["data"])[:2] == bytes([85, 0])


def test_large_factor_tables_keep_the_features_that_take_part(monkeypatch) -> None:
    monkeypatch.setattr(sections, "MOST_LOADINGS", 6)
    inclusion = np.array([[0.1, 0.0], [0.9, 0.2], [0.0, 0.8], [0.5, 0.5]])
    section = sections.factors(
        "t",
        loadings=np.ones((4, 2)),
        shares=[0.5, 0.3],
        inclusion=inclusion,
        activations=np.ones((3, 2)),
        feature_names=list("abcd"),
        sample_names=list("xyz"),
    )
    assert section["features"] == ["b", "c", "d"]
    assert "Of 4 features" in section["note"]


def test_empty_factors_are_not_offered() -> None:
    parts = {"inclusion": np.ones((2, 3)), "activations": np.ones((2, 3)), "feature_names": "ab", "sample_names": "xy"}
    section = sections.factors("t", loadings=np.ones((2, 3)), shares=[0.0, 0.2, 0.3], **parts)
    assert section["order"] == [2, 1]
    assert "Left out: 1 empty." in section["note"]
    none = sections.factors("t", loadings=np.zeros((2, 3)), shares=np.zeros(3), **parts)
    assert none["order"] == [0]  # one is always there
    assert "All factors are empty." in none["note"]


def test_an_empty_factor_has_no_strongest_features() -> None:
    sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5], snr=10, seed=1)
    rows = factor_rows(sf.fit_vi(sim.X, sf.Prior(n_factors=4, inclusion=sf.Beta(1, 1)), n_trials=2, average=True))
    assert [row["strongest"] == "empty" for row in rows] == [False, True, True, True]


def test_shares_are_those_of_the_data() -> None:
    sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.2], snr=0.5, seed=1)
    p = sf.fit_vi(sim.X, sf.Prior(n_factors=2, inclusion=0.3), n_trials=2)
    shares = [row["share of variance"] for row in factor_rows(p)]
    np.testing.assert_array_equal(shares, p.variance_explained(by="factor"))
    assert sum(shares) < 0.6


def test_report_of_draws(tmp_path) -> None:
    sim = sf.simulate(n_features=20, n_samples=10, inclusion=[0.5], snr=5, seed=1)
    p = sf.sample(sim.X, sf.Prior(n_factors=1), n_chains=2, n_warmup=5, n_draws=5, progress=False)
    assert "Gibbs sampling" in posterior_page(p)
