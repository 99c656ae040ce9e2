"""The sections a report is made of: plain data, which the page's script draws."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..explained import solid_first
from ..names import shown
from ..posterior.verdict import Level

if TYPE_CHECKING:
    import pandas

Section = dict[str, Any]

MOST_ROWS = 300  # of the matrix of loadings
ROWS_OF_A_FACTOR = 10  # where there are more
LONGEST_NAME = 200  # characters
ALIKE = 0.5  # numbers that differ by less than this share of the largest are told apart by their later digits
MOST_DECIMALS = 3  # a thousandth of a nat, or of an R-hat, is as fine as anyone reads
MOST_LOADINGS = 1_500_000  # numbers of a factor table that a page may carry; beyond, features with no part are left out


def verdict(title: str, level: Level, sentence: str, details: str, lines: Sequence[str]) -> Section:
    """The verdict in a box, then what was found, a sentence each."""
    return {
        "kind": "verdict", "title": title, "note": "", "level": level, "label": sentence, "text": details,
        "lines": list(lines),
    }  # fmt: skip


def table(title: str, rows: Sequence[Mapping[str, Any]], note: str = "") -> Section:
    """rows: of one kind each column; numbers sort as numbers."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    numeric = {name: all(isinstance(row.get(name, 0.0), int | float) for row in rows) for name in names}
    columns = [
        {"name": name, "number": numeric[name], "decimals": decimals([row.get(name) for row in rows])}
        if numeric[name]
        else {"name": name, "number": False}
        for name in names
    ]
    cells = [[_plain(row.get(name, None if numeric[name] else "")) for name in names] for row in rows]
    return {"kind": "table", "title": title, "note": note, "columns": columns, "rows": cells}


def loadings(title: str, frame: pandas.DataFrame, cutoff: float) -> Section:
    """The matrix of `frames.sorted_loadings`, its cells shaded by size; features without a loading are left out."""
    kept = frame.dropna(how="all")
    without = len(frame) - len(kept)
    note = (
        "Standardised loadings. Features are grouped by their strongest factor, strongest first; loadings below "
        f"{cutoff:g} are blank."
    )
    if without:
        note += f" Left out: {without:,} feature{'s' * (without > 1)} without a loading of {cutoff:g}."
    if len(kept) > MOST_ROWS:
        group = np.nanargmax(np.abs(kept.to_numpy()), axis=1)
        rank = np.arange(len(group)) - np.searchsorted(group, group)  # groups are sorted
        note += f" Of {len(kept):,} others, the {ROWS_OF_A_FACTOR} strongest of each factor are shown."
        kept = kept[rank < ROWS_OF_A_FACTOR]
    columns = [{"name": str(name), "number": True, "decimals": 2, "shade": True} for name in kept.columns]
    rows = [
        [shown(name, LONGEST_NAME), *map(_plain, row)] for name, row in zip(kept.index, kept.to_numpy(), strict=True)
    ]
    return {
        "kind": "table", "title": title, "note": note, "columns": [{"name": "feature", "number": False}, *columns],
        "rows": rows, "limit": len(rows),
    }  # fmt: skip


def factors(
    title: str,
    *,
    loadings: ArrayLike,
    shares: ArrayLike,
    inclusion: ArrayLike,
    activations: ArrayLike,
    feature_names: Sequence[Any] | NDArray[Any],
    sample_names: Sequence[Any] | NDArray[Any],
    loadings_sd: ArrayLike | None = None,
    note: str = "",
) -> Section:
    """The factors one by one: bars over samples, and features to sort and search.

    shares: (n_factors,) of the data's variance; a factor without any is left out.
    """
    L, P, F = (np.asarray(values, dtype=np.float32) for values in (loadings, inclusion, activations))
    sd = None if loadings_sd is None else np.asarray(loadings_sd, dtype=np.float32)
    names = np.asarray([shown(name, LONGEST_NAME) for name in feature_names], dtype=object)
    share = np.asarray(shares, dtype=np.float64)
    order, solid = solid_first(share)
    if solid < len(share):
        note = f"{note} {'All factors are empty.' if not solid else f'Left out: {len(share) - solid} empty.'}".strip()
    if L.size > MOST_LOADINGS:
        room = MOST_LOADINGS // L.shape[1]
        kept = np.sort(np.argsort(-P.max(axis=1), kind="stable")[:room])
        note = f"{note} Of {len(L):,} features, the {room:,} with the largest inclusion are shown.".strip()
        L, P, names = L[kept], P[kept], names[kept]
        sd = None if sd is None else sd[kept]
    return {
        "kind": "factors",
        "title": title,
        "note": note,
        "n_factors": L.shape[1],
        "order": order.tolist(),
        "shares": share.tolist(),
        "features": names.tolist(),
        "samples": [shown(name, LONGEST_NAME) for name in sample_names],
        "loadings": encoded(L),
        "sd": None if sd is None else encoded(sd),
        "inclusion": encoded(np.round(255 * np.clip(P, 0, 1)).astype(np.uint8)),
        "activations": encoded(F),
    }


def record(title: str, facts: Mapping[str, Any]) -> Section:
    return {"kind": "record", "title": title, "record": dict(facts)}


def encoded(values: NDArray[Any]) -> str:
    """Little-endian bytes in base 64."""
    ordered = np.ascontiguousarray(values)
    return base64.b64encode(ordered.astype(ordered.dtype.newbyteorder("<")).tobytes()).decode("ascii")


def decimals(values: Sequence[Any]) -> int | None:
    """Decimals under which a column's numbers have about three digits, and differ where they differ; None: whole."""
    known = np.unique([v for v in values if isinstance(v, float) and np.isfinite(v)])
    if not len(known):
        return None
    largest, gaps = np.abs(known).max(), np.diff(known)
    wanted = [2 - np.floor(np.log10(largest))] if largest > 0 else []
    gaps = gaps[gaps >= 10.0**-MOST_DECIMALS]
    if len(gaps) and known[-1] - known[0] < ALIKE * largest:
        wanted.append(np.ceil(-np.log10(gaps.min())))
    return int(np.clip(max(wanted, default=0), 0, MOST_DECIMALS))


def _plain(value: Any) -> Any:
    if isinstance(value, bool) or value is None or isinstance(value, int | str):
        return value
    number = float(value)
    return float(f"{number:.12g}") if np.isfinite(number) else None
