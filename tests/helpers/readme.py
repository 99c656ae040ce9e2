"""README's printed output and picture: `python tests/helpers/readme.py` writes them anew."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
README, PICTURE = ROOT / "README.md", ROOT / "docs" / "images" / "readme.png"
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n\n```text\n(?P<output>.*?)^```\n", re.MULTILINE | re.DOTALL)


def executed(text: str, folder: Path) -> str:
    """The page with the output of each block of code below it; files that the code writes go to a folder."""
    namespace: dict[str, Any] = {}

    def run(block: re.Match[str]) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block["code"], "README.md", "exec"), namespace)
        lines = "".join(f"{line.rstrip()}\n" for line in printed.getvalue().splitlines())
        return f"```python\n{block['code']}```\n\n```text\n{lines}```\n"

    home = Path.cwd()
    os.chdir(folder)
    try:
        return BLOCK.sub(run, text)
    finally:
        os.chdir(home)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        README.write_text(executed(README.read_text(), Path(folder)))
        shutil.copyfile(Path(folder) / "loadings.png", PICTURE)


if __name__ == "__main__":
    main()
