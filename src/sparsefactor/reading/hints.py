"""Hints about a table that was read: units that differ, and columns that describe the samples."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from .names import listed, shown
from .row_names import is_label

if TYPE_CHECKING:
    import pandas

TENFOLD = 10.0  # between the largest and the smallest standard deviation
DESCRIPTION = re.compile(r"age|alter|sex|gender|geschlecht|.*[\s_.-]id", re.I)
FEWEST = 4  # columns; age and sex among fewer may be the data
COUNTED = 20  # rows at least for a running number


def hints(frame: pandas.DataFrame, scale: bool) -> list[str]:
    """What may be wrong with these samples by features, each with a setting that helps."""
    found = []
    values = frame.to_numpy()
    titles = [str(name) for name in frame.columns]
    if len(titles) >= FEWEST and frame.columns.dtype.kind not in "iu":
        odd = [
            title
            for title, column in zip(titles, values.T, strict=True)
            if DESCRIPTION.fullmatch(title.strip()) or is_label(title) or _is_running_number(column)
        ]
        if odd and len(odd) < len(titles):
            seem = "seems to describe" if len(odd) == 1 else "seem to describe"
            found.append(f"{listed(odd)} {seem} the samples; pass drop={odd[:20]} to leave such columns out")
    with np.errstate(all="ignore"):
        spread = frame.std(ddof=0).to_numpy()
    constant = [titles[j] for j in np.flatnonzero(spread == 0)] if len(values) > 1 else []
    if constant and len(constant) < len(titles):
        same = f"{listed(constant)} {'has' if len(constant) == 1 else 'have'} the same value in every row"
        found.append(f"{same} and cannot belong to a factor; pass drop={constant[:20]} to leave such columns out")
    varies = np.flatnonzero(np.isfinite(spread) & (spread > 0))
    if not scale and len(varies) > 1:
        low, high = varies[np.argmin(spread[varies])], varies[np.argmax(spread[varies])]
        if spread[high] > TENFOLD * spread[low]:
            found.append(
                f"standard deviations range from {spread[low]:.3g} ({shown(titles[low], 20)}) to {spread[high]:.3g} "
                f"({shown(titles[high], 20)}); pass scale=True unless all features have the same unit"
            )
    return found


def _is_running_number(column: np.ndarray) -> bool:
    return (
        len(column) >= COUNTED
        and column[1] != column[0]
        and bool(np.array_equal(column, column[0] + np.arange(len(column)) * (column[1] - column[0])))
    )
