"""The screenshots of the report in docs/howto/report.md: `python -m tests.helpers.screenshots` writes them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import sparsefactor as sf
from sparsefactor.report import posterior_page, write_page

from .browser import Browser, find_chromium

IMAGES = Path(__file__).parents[2] / "docs" / "images"
WIDTH, HEIGHT = 1280, 900


def main() -> None:
    from sklearn.datasets import load_wine

    X = load_wine(as_frame=True).data
    prior = sf.Prior(n_factors=5, inclusion=sf.Beta(1, 1))
    binary = find_chromium()
    assert binary is not None, "the screenshots need Chromium; install it"
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Browser(binary) as browser:
        browser.call("Emulation.setScrollbarsHidden", hidden=True)
        for name, p in (
            ("report", sf.fit_vi(X, prior, scale=True)),
            ("report-draws", sf.sample(X, prior, scale=True, progress=False)),
        ):
            page = Path(folder) / f"{name}.html"
            write_page(page, posterior_page(p, title=f"Wine: {'fit' if name == 'report' else 'draws'}"))
            browser.open(page, width=WIDTH, height=HEIGHT)
            browser.capture(IMAGES / f"{name}.png")


if __name__ == "__main__":
    main()
