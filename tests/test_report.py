"""The report page, opened in a real headless Chromium where there is one (in CI there is)."""

import base64
import io
import os
import re
import stat
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pandas as pd
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
WIDE = 1200


LONG = "a-name-of-a-feature-that-has-no-place-to-break-anywhere-" * 2


@pytest.fixture(scope="module")
def data() -> pd.DataFrame:
    sim = sf.simulate(n_features=60, n_samples=30, inclusion=[0.3, 0.5], snr=5, missing=0.1, seed=1)
    names = [NASTY, "$\\frac{", "\x1b[31mred", LONG, "基因", *(f"gene {i}" for i in range(5, 60))]
    return pd.DataFrame(sim.X, columns=names, index=[f"sample <{j}>" for j in range(30)])


@pytest.fixture(scope="module")
def page(tmp_path_factory, data) -> Path:
    p = sf.fit_vi(data, sf.Prior(n_factors=3, inclusion=sf.Beta(1, 1)), n_trials=4, race=False)
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_page(path, posterior_page(p, title="A <b>bold</b> title"))
    return path


@pytest.fixture(scope="module")
def draws(data) -> sf.MCMCPosterior:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sf.SamplingWarning)
        prior = sf.Prior(n_factors=3, inclusion=sf.Beta(1, 1))
        return sf.sample(data, prior, n_chains=2, n_warmup=20, n_draws=20, progress=False)


@pytest.fixture(scope="module")
def drawn_page(tmp_path_factory, draws) -> Path:
    path = tmp_path_factory.mktemp("report") / "draws.html"
    write_page(path, posterior_page(draws, title="draws"))
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


FEATURES = "Factors one by one"


def test_page_needs_no_network(page) -> None:
    text = page.read_text()
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text
    policy = text.split('Content-Security-Policy"')[1].split(">")[0]
    assert all(f"{name} 'none'" in policy for name in ("default-src", "base-uri", "form-action"))


@needs_chromium
def test_opens_without_console_errors(browser, page) -> None:
    browser.open(page)
    assert browser.problems == []
    titles = browser.run("[...document.querySelectorAll('h2')].map(h => h.textContent)")
    assert titles[:3] == ["Verdict and summary", "Loadings", "Factors at a glance"]
    assert titles[-3:] == ["Restarts", "Convergence (ELBO)", "Settings and data"]
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
    assert browser.run("[...document.querySelectorAll('main img')].every(i => i.src.startsWith('data:image/svg'))")
    assert browser.run("document.querySelectorAll('.bars span')[1].textContent") == "sample <0>"


@needs_chromium
def test_scores_have_an_axis(browser, page, data) -> None:
    browser.open(page)
    labels = browser.run(
        "[...document.querySelectorAll('.bars .scale span, .bars .scale small')].map(n => n.textContent)"
    )
    assert labels[0] == "sample"
    low, middle, high = map(float, labels[1:])
    assert low == -high
    assert middle == 0
    widths = browser.run("[...document.querySelectorAll('.bars b i')].map(n => n.style.width)")
    assert len(widths) == len(data)
    assert "50%" in widths  # the largest reaches the end of the axis
    titles = browser.run("[...document.querySelectorAll('.bars div[title]')].map(n => n.title)")
    largest = max(abs(float(title.rpartition(": ")[2])) for title in titles)
    assert high == pytest.approx(largest, rel=0.05)


@needs_chromium
def test_loadings_are_sorted_by_size_and_shaded(browser, page) -> None:
    browser.open(page)
    click(browser, "Loadings", "factor 1")
    shown = [abs(float(text)) if text else -1.0 for text in column(browser, "Loadings", 1)]
    assert shown == sorted(shown, reverse=True)
    assert shown[-1] == -1.0  # blank
    cells = "[...document.querySelectorAll('.matrix td.number')].map(c => [c.textContent, c.style.background])"
    for text, color in browser.run(cells):
        assert bool(text) == bool(color)
        assert not text or ("213, 94, 0" in color) == text.startswith("-")


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
    first = names.index("gene 5")
    assert names[first : first + 3] == ["gene 5", "gene 6", "gene 7"]  # numbers in names count as numbers
    click(browser, FEATURES, "feature")
    assert "gene 59" in column(browser, FEATURES, 0)[:2]
    click(browser, FEATURES, "loading")
    click(browser, FEATURES, "loading")
    sizes = [abs(float(value)) for value in column(browser, FEATURES, 1)]
    assert sizes == sorted(sizes)


@needs_chromium
@pytest.mark.parametrize("width", [360, 390, 1280])
@pytest.mark.parametrize("which", ["page", "drawn_page"])
def test_fits_the_screen(browser, request, which, width) -> None:
    browser.open(request.getfixturevalue(which), width=width, height=700)
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.problems == []
    browser.run("document.querySelector('main').append(Object.assign(document.createElement('div'), {id: 'wide'}))")
    browser.run("document.getElementById('wide').style = 'width: 2000px; height: 9px'")  # the check can fail
    assert browser.run("document.documentElement.scrollWidth") > width


@needs_chromium
def test_verdict_and_summary_come_first(browser, page, drawn_page) -> None:
    browser.open(page)
    text = browser.run("document.querySelector('section').innerText")
    assert re.search(r"(The fit converged\.|Use with caution: the fit converged)", text)
    assert re.search(r"restarts that were not dropped early", text)
    assert re.search(r"30 samples x 60 features; (9|10)\.\d % of the entries are missing\.", text)
    assert re.search(
        r"Factor 1 explains \d+\.\d % of the variance and includes \d+ features \(\d+ with a standardised loading of "
        r"at least 0\.3\); strongest features: ",
        text,
    )
    browser.open(drawn_page)
    text = browser.run("document.querySelector('section').innerText")
    assert text.count("Not reliable yet") == 1
    assert "R-hat" in text
    assert "Remedy" in text
    titles = browser.run("[...document.querySelectorAll('h2')].map(h => h.textContent)")
    assert [t for t in titles if t in ("Convergence", "Traces", "Ranks", "Agreement between chains")] == [
        "Convergence",
        "Traces",
        "Ranks",
        "Agreement between chains",
    ]


@needs_chromium
def test_long_texts_are_not_squeezed_on_a_narrow_screen(browser, page) -> None:
    browser.open(page, width=390, height=800)
    widths = browser.run("[...document.querySelectorAll('td.long')].map(c => c.getBoundingClientRect().width)")
    assert widths
    assert min(widths) > 200
    scroll = "(s => [s.scrollWidth, s.clientWidth])(document.querySelector('td.long').closest('.scroll'))"
    inside, seen = browser.run(scroll)
    assert inside > seen  # within its own box, not the page


@needs_chromium
def test_numbers_of_a_column_have_the_same_decimals(browser, page) -> None:
    browser.open(page)
    for number in (1, 2, 3):
        texts = column(browser, FEATURES, number)
        assert len({len(text.partition(".")[2]) for text in texts}) == 1, texts


def test_a_doubtful_fit_is_not_called_good(data) -> None:
    p = sf.fit_vi(data, sf.Prior(n_factors=2, inclusion=0.3), n_trials=2)
    facts = {"search": "fast", "restarts": 3, "finalists": 3, "proposals": 0, "agreeing": 3, "ended": "complete"}
    sure = replace(p, stability=np.array([1.0, 0.75]), record={"search": facts})
    alone = replace(sure, record={"search": facts | {"agreeing": 1}})
    improved = replace(alone, record={"search": facts | {"agreeing": 1, "proposals": 24, "search": "thorough"}})
    single = replace(sure, stability=np.full(2, np.nan), record={"search": facts | {"restarts": 1, "agreeing": 1}})
    rare = replace(sure, stability=np.array([1.0, 0.25]))
    cut = replace(sure, status=sf.Status.MAX_ITER)
    levels = [one.verdict.level for one in (sure, alone, improved, single, rare, cut)]
    assert levels == ["good", "caution", "good", "good", "caution", "bad"]
    assert "looks for a better one" in str(alone.verdict)
    assert "better one" not in str(sure.verdict)
    assert "factor 2 appeared in few of the other restarts" in rare.verdict.sentence
    assert "raise max_iter" in cut.verdict.remedies[0]
    assert [one.verdict.ok for one in (sure, rare, cut)] == [True, True, False]


@needs_chromium
def test_settings_say_how_it_was_made(browser, page) -> None:
    browser.open(page)
    facts = dict(zip(column(browser, "Settings and data", 0), column(browser, "Settings and data", 1), strict=True))
    assert facts["sparsefactor"] == sf.__version__
    assert facts["seed"] == "0"
    assert facts["data"] == "30 samples x 60 features"
    assert facts["missing"].endswith("entries)")
    assert re.match(r"\d{4}-\d\d-\d\dT", facts["date"])
    assert facts["n trials"] == "4"


@needs_chromium
def test_elbos_of_trials_differ_where_they_differ(browser, page, data) -> None:
    browser.open(page)
    p = sf.fit_vi(data, sf.Prior(n_factors=3, inclusion=sf.Beta(1, 1)), n_trials=4, race=False)
    own = [f"{record['elbo']:,.3f}" for record in p.trial_records]
    shown = column(browser, "Restarts", 1)
    assert len(set(shown)) == len(set(own)) or max(p.trials["elbo"]) - min(p.trials["elbo"]) < 1e-3
    for a, b in zip(shown, own, strict=True):
        assert float(a.replace(",", "")) == pytest.approx(float(b.replace(",", "")), abs=0.5)


def test_decimals() -> None:
    assert sections.decimals([-76600.12, -76600.57, -76500.0]) == 1
    assert sections.decimals([-76600.1234, -76600.1241]) == 0  # nobody reads finer than a thousandth
    assert sections.decimals([1.0012, 1.0034]) == 3
    assert sections.decimals([51.5, 12.2, 0.0]) == 1
    assert sections.decimals([523.4, 97.0]) == 0
    assert sections.decimals([1, 2]) is None
    assert sections.decimals([float("nan")]) is None


CONTRAST = (Path(__file__).parent / "helpers" / "contrast.js").read_text()


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("which", ["page", "drawn_page"])
def test_contrast_is_at_least_three(browser, request, which, scheme) -> None:
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.open(request.getfixturevalue(which))
    paper = browser.run("getComputedStyle(document.querySelector('section')).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(26, 33, 43)"}[scheme]
    worst = browser.run(CONTRAST)
    assert worst[0][0] >= 3, worst
    browser.run("document.querySelector('h2').style.color = 'rgb(128, 128, 128)'")
    browser.run("document.querySelector('section').style.backgroundColor = 'rgb(140, 140, 140)'")  # the check can fail
    assert browser.run(CONTRAST)[0][0] < 3
    browser.call("Emulation.setEmulatedMedia", features=[])


@needs_chromium
def test_pictures_have_words(browser, page, drawn_page) -> None:
    for path in (page, drawn_page):
        browser.open(path)
        texts = browser.run(
            "[...document.querySelectorAll('img, [role=img]')].map(n => n.alt || n.getAttribute('aria-label') || '')"
        )
        assert texts
        assert all(len(text) > 20 for text in texts), texts
        captions = browser.run("[...document.querySelectorAll('figure.drawn figcaption')].map(n => n.textContent)")
        assert all(captions)
        images = browser.run("[...document.querySelectorAll('img')].map(n => [n.complete, n.naturalWidth])")
        assert all(done and width > 100 for done, width in images)


@needs_chromium
def test_everything_can_be_reached_by_keyboard(browser, page, drawn_page) -> None:
    for path in (page, drawn_page):
        browser.open(path)
        n = browser.run("document.querySelectorAll('a, button:not([hidden]), input, select, .scroll').length")
        browser.run("window.seen = new Set(); document.addEventListener('focusin', e => seen.add(e.target))")
        for _ in range(n + 3):
            browser.key("Tab")
        missed = browser.run(
            "[...document.querySelectorAll('a, button:not([hidden]), input, select, .scroll')]"
            ".filter(x => !seen.has(x)).map(x => x.outerHTML.slice(0, 80))"
        )
        assert missed == []


@needs_chromium
def test_tables_and_figures_can_be_downloaded(browser, page, drawn_page) -> None:
    for path in (page, drawn_page):
        browser.open(path)
        bare = browser.run(
            "[...document.querySelectorAll('section')].slice(1).filter(s => !s.querySelector('a[download]'))"
            ".map(s => s.id)"
        )
        assert bare == []
    browser.open(page)
    click_all = (
        "[...document.querySelectorAll('a.download')].map(a => { a.addEventListener('click', e => e.preventDefault()); "
        "a.click(); return [a.download, a.href] })"
    )
    found = dict(browser.run(click_all))
    assert {
        "factors-at-a-glance.csv",
        "loadings.csv",
        "restarts.csv",
        "activations.csv",
        "settings-and-data.csv",
    } <= set(found)
    assert {"variance-explained.svg", "probability-of-inclusion.svg", "convergence-elbo.svg"} <= set(found)
    text = unquote(found["features-of-the-factor.csv"].removeprefix("data:text/csv;charset=utf-8,"))
    table = pd.read_csv(io.StringIO(text))
    assert list(table.columns) == ["feature", "loading", "sd", "inclusion"]
    assert len(table) == 60
    assert NASTY in set(table["feature"])
    picture = base64.b64decode(found["variance-explained.svg"].partition("base64,")[2])
    assert b"<svg" in picture


@needs_chromium
def test_prints_without_controls(browser, page) -> None:
    browser.open(page)
    assert browser.run("getComputedStyle(document.querySelector('.controls')).display") == "flex"
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.run("getComputedStyle(document.querySelector('.controls')).display") == "none"
    assert browser.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    browser.call("Emulation.setEmulatedMedia", media="")


def test_control_characters_in_names_are_spelt_out(page) -> None:
    assert "\x1b" not in page.read_text()
    assert "\\u001b" not in page.read_text()


def test_permissions_follow_the_umask(tmp_path) -> None:
    old = os.umask(0o077)
    try:
        write_page(tmp_path / "private.html", "x")
        os.umask(0o022)
        write_page(tmp_path / "open.html", "x")
    finally:
        os.umask(old)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("private.html", "open.html")]
    assert modes == [0o600, 0o644]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no full device to write to")
def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch) -> None:
    target = tmp_path / "report.html"
    target.write_text("what was there")
    monkeypatch.setattr(os, "dup", lambda _: os.open("/dev/full", os.O_WRONLY))  # what the page is written to
    with pytest.raises(OSError, match="No space left"):
        write_page(target, "x" * 100_000)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert target.read_text() == "what was there"


def test_the_same_result_gives_the_same_page(draws) -> None:
    assert posterior_page(draws) == posterior_page(draws)


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
    assert [row["strongest features"] == "empty" for row in rows] == [False, True, True, True]


def test_shares_are_those_of_the_data() -> None:
    sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.2], snr=0.5, seed=1)
    p = sf.fit_vi(sim.X, sf.Prior(n_factors=2, inclusion=0.3), n_trials=2)
    shares = [row["share of variance (%)"] for row in factor_rows(p)]
    np.testing.assert_allclose(shares, 100 * p.variance_explained(by="factor"))
    assert sum(shares) < 60
