"""Can a result be used: a level, a sentence, reasons and remedies; the same words wherever they are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from ..names import listed

if TYPE_CHECKING:
    from .variational import VIPosterior

Level = Literal["good", "caution", "bad"]

STABLE = 0.5  # a factor that a smaller share of the other restarts has is doubtful


@dataclass(frozen=True, repr=False)
class Verdict:
    """Whether a result can be used, and why, or what to do; `p.verdict` has it. `str(p.verdict)` is the whole text.

    Attributes
    ----------
    level : "good", "caution" or "bad"
        Use it; use it with caution; do not use it yet.
    sentence : str
        The verdict in one sentence.
    reasons : tuple of str
        What it rests on, a sentence each.
    remedies : tuple of str
        What helps, one suggestion each; empty where nothing needs to be done.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.2], snr=4, seed=0)
    >>> verdict = sf.fit_vi(sim.X, n_factors=2).verdict
    >>> verdict.level, verdict.sentence, verdict.remedies
    ('good', 'The fit converged.', ())
    """

    level: Level
    sentence: str
    reasons: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the result can be used, if with caution."""
        return self.level != "bad"

    @property
    def details(self) -> str:
        """The text after the sentence: reasons and remedies."""
        advice = [f"Remedy: {'; or '.join(self.remedies)}."] if self.remedies else []
        return " ".join([*self.reasons, *advice])

    def __str__(self) -> str:
        return f"{self.sentence} {self.details}".strip()

    def __repr__(self) -> str:
        return f"{type(self).__name__} ({self.level}): {self}"


def verdict_of_vi(p: VIPosterior) -> Verdict:
    """The verdict on a variational fit: convergence first, then whether other restarts found the same."""
    if not p.converged:
        reason, _, remedy = p.status.value.rstrip(".").rpartition("; ")
        return Verdict("bad", "Not reliable yet: the fit has not converged.", (f"{reason}.", p.certainty), (remedy,))
    doubtful = [str(k + 1) for k in np.flatnonzero(np.nan_to_num(p.stability, nan=1.0) < STABLE)]
    if doubtful:
        which = f"factor{'s' if len(doubtful) > 1 else ''} {listed(doubtful)}"
        return Verdict(
            "caution",
            f"Use with caution: the fit converged, but {which} appeared in few of the other restarts.",
            (p.certainty,),
            (f"interpret {which} with caution, or check with sample",),
        )
    search = p.record.get("search", {})
    if search.get("restarts", 1) > 1 and not search.get("proposals", 0) and search.get("agreeing", 1) <= 1:
        return Verdict(
            "caution",
            "Use with caution: the fit converged, but only one restart reached this solution.",
            (p.certainty,),
        )
    return Verdict("good", "The fit converged.", (p.certainty,))
