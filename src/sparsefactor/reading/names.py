"""Names of samples and features: unique, not empty, of bearable length; and how they are shown to people."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

LONGEST = 1000  # characters; arrays of names take this much for each
SHOWN = 60
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def shown(name: object, longest: int = SHOWN) -> str:
    """A name for a terminal: control characters spelt out, and cut where it is long."""
    text = UNPRINTABLE.sub(lambda found: repr(found[0])[1:-1], str(name))
    return text if len(text) <= longest else text[: longest - 3] + "..."


def checked(names: Sequence[str], what: str, file: str, first: int = 1) -> list[str]:
    """Names that serve; `what` is "column" or "line", `first` the number of the first in the file."""
    stripped = [name.strip() for name in names]
    for number, name in enumerate(stripped, start=first):
        if not name:
            raise ValueError(f"every {what} must have a name; {what} {number} of {file} has none; name it, or drop it")
        if len(name) > LONGEST:
            raise ValueError(
                f"names must have at most {LONGEST} characters; that of {what} {number} of {file} has {len(name)}; "
                "shorten it"
            )
    if len(set(stripped)) < len(stripped):
        name, count = Counter(stripped).most_common(1)[0]
        places = [str(i) for i, other in enumerate(stripped, start=first) if other == name]
        raise ValueError(
            f"names must be unique; {shown(name)!r} names {count} {what}s of {file} ({', '.join(places[:4])}); "
            "rename or drop one"
        )
    return stripped
