"""The numbers and names of a frame from a file, by the rules that hold for text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from . import names
from .layout import choose_columns
from .numeric import NumberFormat
from .parsed import Parsed

if TYPE_CHECKING:
    import pandas

    from .table import Choices

HEAD = 1000


def from_frame(frame: pandas.DataFrame, path: Path, choices: Choices, kind: str) -> Parsed:
    """A frame's numbers and names; an index that is no running number holds names."""
    import pandas as pd

    original = frame
    head = range(min(HEAD, len(frame)))
    numbered = frame.index.dtype.kind in "iu" and list(frame.index[:HEAD]) in ([*head], [i + 1 for i in head])
    named_first = not numbered and choices.index in (None, True)
    if named_first:
        frame = frame.set_axis(frame.index.rename(str(frame.index.name or ""))).reset_index()
        frame = frame.rename(columns={frame.columns[0]: ""}) if frame.columns[0] == "index" else frame
    titles = tuple(str(name) for name in frame.columns)
    if frame.shape[0] == 0 or frame.shape[1] == 0:
        raise ValueError(f"a table must hold numbers; {path.name} is empty; check how it was made")

    def cells(column: int, rows: slice = slice(None)) -> list[str]:
        return ["" if value is None or value is pd.NA else str(value) for value in frame.iloc[rows, column]]

    body = [list(record) for record in zip(*(cells(j, slice(HEAD)) for j in range(len(titles))), strict=True)]
    text = {j for j, kind_of in enumerate(frame.dtypes) if kind_of.kind not in "fiub"}
    numbers = NumberFormat(choices.na)
    layout = choose_columns(titles, body, numbers, len(frame), path.name, choices, text, named_first)
    return Parsed(
        values=frame.iloc[:, list(layout.kept)].to_numpy(dtype=np.float64, na_value=np.nan).copy(),
        rows=None if layout.index is None else names.checked(cells(layout.index), "row", path.name),
        columns=names.checked([titles[j] for j in layout.kept], "column", path.name),
        kind=kind,
        index=layout.index_title,
        questions=layout.questions,
        notes=layout.notes,
        kept=tuple(j - named_first for j in layout.kept),
        frame=original,
    )
