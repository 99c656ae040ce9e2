"""Names of samples and features in a file: unique, not empty, of bearable length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..names import LONGEST as LONGEST
from ..names import UNPRINTABLE as UNPRINTABLE
from ..names import shown as shown


def listed(names: Sequence[str], most: int = 3, quote: bool = False) -> str:
    """A few of the names for a sentence: a, b and c; a, b, c and 4 more."""
    words = [repr(shown(name)) if quote else shown(name) for name in names[:most]]
    if len(names) > most:
        words.append(f"{len(names) - most} more")
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def beginning(cells: Sequence[str]) -> str:
    """The first few of some cells."""
    return ", ".join(shown(cell.strip(), 20) for cell in cells[:3]) + (", ..." if len(cells) > 3 else "")


def checked(names: Sequence[str], what: str, file: str, first: int = 1) -> list[str]:
    """Names without blanks around them; `what` is "column" or "row", `first` the number of the first in the file."""
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
        remedy = "rename or drop one" if what == "column" else "rename one, or pass index=False if they are no names"
        raise ValueError(
            f"names must be unique; {shown(name)!r} names {count} {what}s of {file} ({', '.join(places[:4])}); {remedy}"
        )
    return stripped
