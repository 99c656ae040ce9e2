"""Turns the LaTeX of every page into MathML when the documentation is built, so that pages need no network.

A hook of mkdocs (see mkdocs.yml). An equation's \\tag becomes its number at the right margin and an anchor.
"""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
DISPLAY = re.compile(r'<div class="arithmatex">\\\[(.*?)\\\]</div>', re.DOTALL)
TAG = re.compile(r"\\tag\{([^}]*)\}")


def on_page_content(content: str, **_: Any) -> str:
    """mkdocs calls this for every page."""
    content = DISPLAY.sub(lambda match: _display(html.unescape(match.group(1))), content)
    return INLINE.sub(lambda match: convert(html.unescape(match.group(1))), content)


def _display(latex: str) -> str:
    tag = TAG.search(latex)
    formula = convert(TAG.sub("", latex).strip(), display="block")
    number = f'<span id="eq-{tag.group(1)}">({tag.group(1)})</span>' if tag else ""
    style = "display: flex; align-items: center; overflow-x: auto; overflow-y: hidden; padding: 0.5em 0"
    return f'<div style="{style}"><div style="flex: 1">{formula}</div>{number}</div>'
