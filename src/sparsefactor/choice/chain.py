"""The fits of one mask, one after another: each may start from the solution of the one before it.

Both see the same entries, so a start has seen nothing that is held out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..model import Prior
from ..start import Start
from .cache import key, read_end, read_result, write_end, write_result

Judge = Callable[[Prior, Start | None], tuple[dict[str, Any], Start]]


class Chain:
    """Priors by name, in the order of their fits. judge: fits a prior without what the mask holds out."""

    def __init__(self, names: Sequence[str], priors: Sequence[Prior], mask: int, judge: Judge) -> None:
        self.names, self.priors, self.mask, self.judge = names, priors, mask, judge
        self.done = 0
        self.end: Start | None = None  # of the last fit
        self.files: list[Path] = []

    def cache_in(self, folder: Path, base: str) -> None:
        """Read finished fits from this folder, and write new ones to it."""
        before = ""
        for prior in self.priors:
            before = key(base, prior, self.mask, before)
            self.files.append(folder / f"{before}.json")

    def step(self) -> tuple[str, dict[str, Any]]:
        """The result of the next fit, from the cache if it is there."""
        at, self.done = self.done, self.done + 1
        found = read_result(self.files[at]) if self.files else None
        if found is None:
            found, self.end = self.fit(at)
        else:
            self.end = None  # on disk, should it be needed
        return self.names[at], found

    def fit(self, at: int) -> tuple[dict[str, Any], Start]:
        found, end = self.judge(self.priors[at], None if at == 0 else self.end or self.end_of(at - 1))
        if self.files:
            if at + 1 < len(self.priors):
                write_end(self.files[at].with_suffix(".npz"), end)
            write_result(self.files[at], found)
            if at:
                self.files[at - 1].with_suffix(".npz").unlink(missing_ok=True)
        return found, end

    def end_of(self, at: int) -> Start:
        """The solution of a finished fit; if it is lost, the fit is repeated."""
        return read_end(self.files[at].with_suffix(".npz")) or self.fit(at)[1]
