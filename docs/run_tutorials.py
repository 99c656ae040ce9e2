"""Runs the Python blocks of pages when the documentation is built, and shows what they gave.

A hook of mkdocs (see mkdocs.yml), for pages under tutorials/ and others whose front matter says `run: true`. Blocks of
a page share one namespace and an empty working directory. Below each block comes what it printed and the value of its
last expression. A block that fails, fails the build. With RUN_TUTORIALS=no in the environment blocks are not run, for
a quick look at the pages.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import tempfile
from typing import Any

BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


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
            return BLOCK.sub(
                lambda match: match.group(0) + _shown(run_block(match.group(1), namespace, name)), markdown
            )
        finally:
            os.chdir(home)


def run_block(code: str, namespace: dict[str, Any], name: str) -> str:
    """What the block prints, and the value of its last expression, as text."""
    tree = ast.parse(code, filename=name)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)  # type: ignore[attr-defined]
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(tree, name, "exec"), namespace)
        if last is not None:
            value = eval(compile(last, name, "eval"), namespace)
            if value is not None:
                print(value)
    return out.getvalue()


def _shown(output: str) -> str:
    return f"\n```text\n{output.rstrip()}\n```\n" if output.strip() else ""
