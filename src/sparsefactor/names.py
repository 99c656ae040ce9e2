"""Names of samples and features: unique, not missing, of bearable length; and how they are shown to people."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

LONGEST = 1000  # characters; an array of names takes as much for each as for the longest
SHOWN = 60
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def shown(name: object, longest: int = SHOWN) -> str:
    """A name for a terminal: control characters spelt out, and cut where it is long."""
    text = UNPRINTABLE.sub(lambda found: repr(found[0])[1:-1], str(name))
    return text if len(text) <= longest else text[: longest - 3] + "..."


def listed(words: Sequence[str]) -> str:
    """Words with commas between, and "and" before the last."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def checked_names(names: Sequence[Any] | None, size: int, what: str) -> NDArray[Any]:
    """Names as an array of strings, or numbers from 0 where there are none; `what` is "sample" or "feature"."""
    if names is None:
        return np.arange(size)
    for number, name in enumerate(names, start=1):
        if is_missing(name):
            raise ValueError(f"every {what} must have a name, or none; {what} {number} has none; name it, or drop it")
        if len(str(name)) > LONGEST:
            raise ValueError(
                f"{what} names must have at most {LONGEST} characters; that of {what} {number}, {shown(name)!r}, has "
                f"{len(str(name))}; shorten it"
            )
    array = np.asarray([str(name) for name in names], dtype=str)
    repeated, count = Counter(array.tolist()).most_common(1)[0]
    if count > 1:
        raise ValueError(f"{what} names must be unique; {shown(repeated)!r} occurs more than once; rename or drop one")
    return array


def is_missing(name: Any) -> bool:
    """Whether a label is one that pandas or polars have for what is not there."""
    return name is None or (isinstance(name, float) and name != name) or type(name).__name__ in ("NAType", "NaTType")
