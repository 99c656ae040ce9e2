"""Run the Python blocks of pages when the documentation is built, and show their output.

A hook of mkdocs (see mkdocs.yml), for pages under tutorials/ and others whose front matter says `run: true`. Blocks of
a page share one namespace and an empty working directory. What a block prints and the value of its last expression
(text, or a matplotlib figure) appear below it. A block that fails, fails the build.

With RUN_TUTORIALS=no no page is run, for a quick look.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import os
import re
import tempfile
import textwrap
from typing import Any

BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
DPI = 100
WIDTH = 76  # characters of output that a page shows without scrolling


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """mkdocs calls this for every page."""
    wanted = page.file.src_uri.startswith("tutorials/") or page.meta.get("run", False)
    if not wanted or os.environ.get("RUN_TUTORIALS", "yes") == "no":
        return markdown
    return executed(markdown, page.file.src_uri)


def executed(markdown: str, name: str) -> str:
    """The page with the output of each block below it."""
    namespace: dict[str, Any] = {"__name__": "__tutorial__"}
    home = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return BLOCK.sub(lambda match: match.group(0) + run_block(match.group(1), namespace, name), markdown)
        finally:
            os.chdir(home)


def run_block(code: str, namespace: dict[str, Any], name: str) -> str:
    """What the block prints, and the value of its last expression, as Markdown."""
    tree = ast.parse(code, filename=name)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)  # type: ignore[attr-defined]
    out, value = io.StringIO(), None
    with contextlib.redirect_stdout(out):
        exec(compile(tree, name, "exec"), namespace)
        if last is not None:
            value = eval(compile(last, name, "eval"), namespace)
            figure = figure_of(value)
            if figure is None and value is not None:
                print(value)
    text = "\n".join(map(wrap, out.getvalue().splitlines()))
    shown = f"\n```text\n{text.rstrip()}\n```\n" if text.strip() else ""
    return shown + (picture(figure_of(value)) if figure_of(value) is not None else "")


def wrap(line: str) -> str:
    """A long line of prose as several; rows of tables stay as they are."""
    if len(line) <= WIDTH or "  " in line.strip():
        return line
    indent = line[: len(line) - len(line.lstrip())] + "  "
    return textwrap.fill(line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def figure_of(value: Any) -> Any:
    """The matplotlib Figure that a value is or belongs to, or None."""
    figure = getattr(value, "figure", value)
    return figure if hasattr(figure, "savefig") else None


def picture(figure: Any) -> str:
    """A figure as Markdown that needs no file: the picture itself, with the figure's titles for alternative text."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=DPI)
    titles = [figure.get_suptitle(), *(ax.get_title() for ax in figure.axes)]
    words = "; ".join(re.sub(r"[\[\]\n$\\]", " ", title).strip() for title in titles if title) or "A figure"
    return f"\n![{words}](data:image/png;base64,{base64.b64encode(data.getvalue()).decode()})\n"
