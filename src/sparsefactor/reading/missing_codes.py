"""How files say that an entry is missing: by an empty cell, a word, or a number far from all others such as -99."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .names import listed, shown

# An empty cell is the first of them.
NA = ("", ".", "?", "-", "--", "NA", "na", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NAN", "null", "NULL", "None")
CODES = (-9, -77, -88, -99, -999, -9999, 77, 88, 99, 999, 9999, 99999)
FAR = 2.0  # times the range of a column's other values, beyond its ends
WIDE, SHARE = (
    1000,
    0.01,
)  # of a table with this number of columns, a code stands in this share: among many, large values are near any number
CHUNK = 256  # columns looked at together


def mask_codes(values: NDArray[np.float64], na: Sequence[str]) -> None:
    """Set numbers that mean missing to NaN, in place, however they are written (-99 and -99.0)."""
    for word in na:
        try:
            code = float(word)
        except ValueError:
            continue
        values[values == code] = np.nan


def suspected_codes(values: NDArray[np.float64], titles: Sequence[str], keep: Sequence[str]) -> str:
    """A question about numbers that may mean missing; empty where there are none."""
    known = {float(word) for word in keep}
    found: dict[int, list[tuple[int, int, float, float]]] = {}
    for begin in range(0, values.shape[1], CHUNK):
        part = values[:, begin : begin + CHUNK]
        coded = np.isin(part, CODES)
        for j in map(int, np.flatnonzero(coded.any(axis=0))):
            others = part[~coded[:, j] & np.isfinite(part[:, j]), j]
            if len(others) < 2 or others.min() == others.max():
                continue
            low, high = others.min(), others.max()
            reach = FAR * (high - low)
            for code in np.unique(part[coded[:, j], j]):
                if code not in known and (code > high + reach or code < low - reach):
                    count = int((part[:, j] == code).sum())
                    found.setdefault(int(code), []).append((begin + j, count, low, high))
    if values.shape[1] > WIDE:
        found = {code: at for code, at in found.items() if len(at) >= SHARE * values.shape[1]}
    if not found:
        return ""
    said = []
    for code, at in found.items():
        first, _, low, high = at[0]
        where = f"column {shown(titles[first])}" if len(at) == 1 else f"columns {listed([titles[i] for i, *_ in at])}"
        times = sum(count for _, count, *_ in at)
        others = f"whose other values lie between {low:g} and {high:g}" if len(at) == 1 else "far from other values"
        said.append(f"{code} stands {times} {'time' if times == 1 else 'times'} in {where}, {others}")
    codes = [str(code) for code in found]
    mean = f"Does {codes[0]} mean" if len(codes) == 1 else f"Do {listed(codes)} mean"
    return f"{'; '.join(said)}. {mean} missing? Pass na={codes} if so, keep={codes} if not"
