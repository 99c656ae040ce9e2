"""One self-contained page: sections as JSON, and the script and style that draw them, all inline."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from ..atomic import open_replacing
from ..version import __version__
from .sections import Section

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:;
 base-uri 'none'; form-action 'none'">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
<a class="skip" href="#content">Skip to the report</a>
<header><h1>{title}</h1><p class="soft">{subtitle}</p>{notice}<nav aria-label="sections"></nav></header>
<main id="content">
<noscript>This page draws its tables and figures with a script of its own; allow it to run.</noscript>
</main>
<footer><p class="soft">Made by sparsefactor {version}.</p></footer>
<script type="application/json" id="data">{data}</script>
<script>
{script}
</script>
</body>
</html>
"""


def render(title: str, subtitle: str, sections: Sequence[Section], *, notice: str = "") -> str:
    """The page. Names are data: they never become markup, in the browser or here."""
    here = files(__package__)
    script = (here / "page.js").read_text(encoding="utf-8")
    # Inside a script element only "<" can end it; JSON allows it to be written otherwise.
    data = json.dumps({"sections": list(sections)}, allow_nan=False).replace("<", "\\u003c").replace("&", "\\u0026")
    return PAGE.format(
        title=html.escape(title),
        subtitle=html.escape(subtitle),
        notice=f'<p class="notice">{html.escape(notice)}</p>' if notice else "",
        style=(here / "report.css").read_text(encoding="utf-8"),
        data=data,
        version=html.escape(__version__),
        script=script,
    )


def write_page(path: Path, page: str) -> None:
    """Whole or not at all; a full disk leaves what was there, and nothing beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_replacing(path) as file:
        file.write(page.encode())
