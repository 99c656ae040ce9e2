"""Trials that climb side by side, where the engine can do that, and else one after the other: the same climbs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from .accelerate import KEPT
from .cavi import CAVI
from .trial import Tolerance, Trial

MANY = 16  # trials for which it pays to compile another iteration


def side_by_side(cavi: CAVI, n_trials: int, tell: Any) -> bool:
    """Whether so many are advanced together: nobody looks on after each iteration, and the engine has a way."""
    return n_trials >= MANY and tell is None and cavi.shortcut is not None and cavi.shortcut.most_together > 1


def advance(trials: Sequence[Trial], until: int, tolerance: Tolerance) -> None:
    """`Trial.advance` of each."""
    first = trials[0]
    alike = all(trial.cavi is first.cavi for trial in trials)
    if not (alike and side_by_side(first.cavi, len(trials), first.tell)):
        for trial in trials:
            trial.advance(until, tolerance)
        return
    shortcut = first.cavi.shortcut
    assert shortcut is not None
    most = shortcut.most_together
    while waiting := [trial for trial in trials if trial.status is None and trial.iterations < until]:
        for begin in range(0, len(waiting), most):
            _advance(waiting[begin : begin + most], until, tolerance, min(most, len(trials)))


def _advance(trials: list[Trial], until: int, tolerance: Tolerance, room: int) -> None:
    """Up to where the engine lets the host look, or to the next assignment of factors to unequal priors."""
    begin, cavi, accelerate = time.perf_counter(), trials[0].cavi, trials[0].momentum is not None
    assigning = accelerate and cavi.n_kinds > 1
    for trial in trials:
        if trial.iterations >= trial.next_assignment:
            trial.assign()
            trial.next_assignment = 2 * trial.iterations
    climbers = [
        trial.climber(min(until, max(trial.next_assignment, trial.iterations + 1)) if assigning else until)
        for trial in trials
    ]
    assert cavi.shortcut is not None
    told = cavi.shortcut.together(climbers, tolerance, KEPT if accelerate else None, room)
    seconds = (time.perf_counter() - begin) / len(trials)
    for trial, (after, converged, way) in zip(trials, told, strict=True):
        trial.climbed(after, converged, way, seconds)
        trial.looked_at()
