"""A frame's numbers and names, as those of a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from . import names
from .cells import Reader
from .guess import dropped_columns, names_in
from .parts import Parts

if TYPE_CHECKING:
    import pandas

    from .table import Choices

HEAD = 1000


def from_frame(frame: pandas.DataFrame, path: Path, choices: Choices, kind: str) -> Parts:
    """A frame's numbers and names; a first column of names is found as in text."""
    import pandas as pd

    frame = frame.copy(deep=False)
    frame.columns = [str(name) for name in frame.columns]
    dropped_columns(list(frame.columns), frame.shape[1], choices.drop, path.name)
    corner, rows = "", None
    counted = frame.index.dtype.kind in "iu" and list(frame.index[:HEAD]) in (
        list(range(min(HEAD, len(frame)))),
        list(range(1, 1 + min(HEAD, len(frame)))),
    )
    if choices.index is not False and not counted:
        corner, rows = str(frame.index.name or ""), [str(name) for name in frame.index]
    frame = frame.drop(columns=list(choices.drop))
    if rows is None and choices.index is not False and frame.shape[1] > 1:
        title = str(frame.columns[0])
        column = ["" if value is None or value is pd.NA else str(value) for value in frame.iloc[:, 0]]
        if choices.index or names_in(title, column[:HEAD], Reader(choices.na), path.name):
            corner, rows, frame = title, column, frame.iloc[:, 1:]
    text = [c for c, kind_of in zip(frame.columns, frame.dtypes, strict=True) if kind_of.kind not in "fiub"]
    if text:
        shown = names.shown(text[0])
        raise ValueError(
            f"every column but one of names must hold numbers; column {shown!r} of {path.name} does not; "
            f"pass drop=[{shown!r}] (--drop {shown!r}) to leave it out, or encode it"
        )
    return Parts(
        frame.to_numpy(dtype=np.float64, na_value=np.nan),
        None if rows is None else names.checked(rows, "line", path.name),
        names.checked(list(frame.columns), "column", path.name),
        kind,
        corner,
    )
