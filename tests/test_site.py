"""The documentation as it is built: it fits a telephone, and its search and its dark mode are there."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.helpers.browser import Browser, find_chromium

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 390
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_chromium() is None, reason="needs Chromium"),
    pytest.mark.skipif(
        any(find_spec(name) is None for name in ("mkdocs", "material", "mkdocstrings", "latex2mathml")),
        reason="make docs sets it up",
    ),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The pages, whose blocks are not run: what they show is text and pictures, which fit as all others do."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "RUN_TUTORIALS": "no", "NO_MKDOCS_2_WARNING": "1"}, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    binary = find_chromium()
    assert binary is not None
    with Browser(binary) as found:
        yield found


def opened(browser: Browser, page: Path, width: int) -> int:
    browser.problems.clear()
    browser.open(page, width=width, height=800, ready="document.readyState == 'complete'")
    return int(browser.run("document.documentElement.scrollWidth"))


def test_every_page_fits_a_telephone(site, browser) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    wide = {str(page.relative_to(site)): size for page in pages if (size := opened(browser, page, WIDTH)) > WIDTH}
    assert wide == {}


def test_a_page_that_is_too_wide_is_noticed(site, browser) -> None:
    opened(browser, site / "index.html", WIDTH)
    browser.run("document.querySelector('article').append(Object.assign(document.createElement('div'), {id: 'wide'}))")
    browser.run("document.getElementById('wide').style = 'width: 2000px; height: 9px'")
    assert browser.run("document.documentElement.scrollWidth") > WIDTH


def test_it_has_search_and_a_dark_mode_and_asks_nobody(site, browser) -> None:
    opened(browser, site / "index.html", 1280)
    assert browser.run("document.querySelectorAll('input[name=query]').length") == 1
    assert browser.run("document.querySelectorAll('input[name=__palette]').length") == 3
    for page in site.rglob("*.html"):
        asked = re.findall(r'<(?:script|img|link|iframe)[^>]*(?:src|href)="(https?:[^"]+)"', page.read_text())
        assert asked == [], page


def test_the_reference_has_each_parameter_s_own_default_and_no_internal_ones(site) -> None:
    text = re.sub(r"<[^>]+>|\s", "", (site / "reference" / "fitting.html").read_text())
    for default in ("tol(float,default:'auto')", "rtol(float,default:1e-14)", "noise_shape(float,default:1.0)"):
        assert default in html.unescape(text)
    assert "settled(bool" not in text
