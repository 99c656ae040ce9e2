"""Runs the Python blocks of pages when the documentation is built, and shows what they gave.

A hook of mkdocs (see mkdocs.yml), for pages under tutorials/ and others whose front matter says `run: true`. Blocks of
a page share one namespace and an empty working directory. Below each block comes what it printed and the value of its
last expression: text, or the picture where it is matplotlib's. A block that fails, fails the build.

A page whose front matter says `data: VARIABLE` needs a file that does not ship with the package: the environment
variable holds its path. Where there is no such file the page is shown without being run, and says so. With
RUN_TUTORIALS=no no page is run, for a quick look.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import os
import re
import tempfile
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
# Where files lie that pages need, unless the environment says otherwise.
FILES = {
    "SPARSEFACTOR_GTEX": Path(__file__).resolve().parents[2] / "shared" / "data" / "gtex_zscores_1000x44.csv.gz",
}
DPI = 100


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """mkdocs calls this for every page."""
    wanted = page.file.src_uri.startswith("tutorials/") or page.meta.get("run", False)
    if not wanted or os.environ.get("RUN_TUTORIALS", "yes") == "no":
        return markdown
    needed = page.meta.get("data")
    if needed and not found(needed):
        return without_data(markdown, needed)
    return executed(markdown, page.file.src_uri)


def found(variable: str) -> bool:
    """Whether the file of an environment variable is there; the variable is set where the usual place has it."""
    path = Path(os.environ.get(variable) or FILES[variable])
    if path.is_file():
        os.environ[variable] = str(path.resolve())
    return path.is_file()


def without_data(markdown: str, variable: str) -> str:
    """The page as it is, with a note below its title that nothing was run."""
    note = (
        '\n!!! note "Not run when this page was built"\n    The data do not ship with the package. '
        f"Set `{variable}` to the path of the file, and build again to see what each block gives.\n"
    )
    return re.sub(r"(^# .*\n)", lambda title: title[1] + note, markdown, count=1, flags=re.MULTILINE)


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
    text = out.getvalue()
    shown = f"\n```text\n{text.rstrip()}\n```\n" if text.strip() else ""
    return shown + (picture(figure_of(value)) if figure_of(value) is not None else "")


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
