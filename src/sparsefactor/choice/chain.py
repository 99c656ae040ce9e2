"""The fits of one mask, one after another: each may start from where the one before it ended.

That one saw what this one may see, and nothing that its mask hides: nothing that is to be predicted is in a start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..model import Prior
from ..start import Start
from .kept import keep, keep_end, kept, kept_end, key

Judge = Callable[[Prior, Start | None], tuple[dict[str, Any], Start]]


class Chain:
    """Priors by name, in the order of their fits. judge: fits a prior without what the mask holds out."""

    def __init__(self, names: Sequence[str], priors: Sequence[Prior], mask: int, judge: Judge) -> None:
        self.names, self.priors, self.mask, self.judge = names, priors, mask, judge
        self.done = 0
        self.end: Start | None = None  # of the last fit
        self.files: list[Path] = []

    def keep_in(self, folder: Path, base: str) -> None:
        """Find there what was done before, and leave there what is done now."""
        before = ""
        for prior in self.priors:
            before = key(base, prior, self.mask, before)
            self.files.append(folder / f"{before}.json")

    def step(self) -> tuple[str, dict[str, Any]]:
        """The next fit, or what is known of it."""
        at, self.done = self.done, self.done + 1
        found = kept(self.files[at]) if self.files else None
        if found is None:
            found, self.end = self.fit(at)
        else:
            self.end = None  # on disk, should it be needed
        return self.names[at], found

    def fit(self, at: int) -> tuple[dict[str, Any], Start]:
        found, end = self.judge(self.priors[at], None if at == 0 else self.end or self.end_of(at - 1))
        if self.files:
            if at + 1 < len(self.priors):
                keep_end(self.files[at].with_suffix(".npz"), end)
            keep(self.files[at], found)
            if at:
                self.files[at - 1].with_suffix(".npz").unlink(missing_ok=True)
        return found, end

    def end_of(self, at: int) -> Start:
        """Where a fit that was done before ended; where that is lost, it is done again."""
        return kept_end(self.files[at].with_suffix(".npz")) or self.fit(at)[1]
