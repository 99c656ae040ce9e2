"""Runs that go on by themselves until their chains agree."""

from __future__ import annotations

import logging
from collections.abc import Generator

from ..diagnostics import Verdict, judge
from ..posterior import MCMCPosterior
from .clock import Clock
from .options import Options
from .watch import Watcher

logger = logging.getLogger("sparsefactor")

DOUBLINGS = 4  # of n_draws, at most
LEAST = 0.25  # of the draws there are: to go on for fewer is not worth another look
SPARE = 0.1  # of the time that is left


def run_until(
    stretches: Generator[MCMCPosterior, int | None, None], options: Options, watcher: Watcher, clock: Clock
) -> tuple[MCMCPosterior, Verdict]:
    """The first posterior that is good enough, or the last that may be had, and its verdict, which says how it ended.

    What is decided depends on the draws alone, unless max_seconds ends it.
    """
    asked, reason = None, ""
    while True:
        result = next(stretches) if asked is None else stretches.send(asked)
        verdict = judge(result)
        n_draws = result.permutations.shape[1]
        if options.until is None or verdict.ok or watcher.stopped:
            break
        if n_draws >= options.n_draws << DOUBLINGS:
            reason = f"it has {n_draws // options.n_draws} times n_draws={options.n_draws}"
            break
        more = n_draws
        if options.max_seconds is not None:
            more = min(more, affordable(n_draws, options.thin, options.max_seconds, clock))
        if more < LEAST * n_draws:
            reason = f"a quarter more draws would take longer than max_seconds={options.max_seconds:g}"
            break
        logger.info("%d draws are not enough: %s", n_draws, verdict.text)
        asked = min(n_draws + more, options.n_draws << DOUBLINGS)
    result.record["trusted"] = verdict.ok
    if watcher.stopped:
        why = "by the callback" if watcher.full is None else "since memory was full,"
        result.record["ended"] = f"stopped {why} with {n_draws} draws of {result.n_chains} chains"
    elif options.until is None:
        result.record["ended"] = f"n_draws={n_draws} were asked for"
    elif verdict.ok:
        result.record["ended"] = f"converged with {n_draws} draws a chain"
    else:
        result.record["ended"] = f"stopped with {n_draws} draws a chain: {reason}"
        verdict = verdict._replace(text=f"{verdict.text} The run {result.record['ended']}.")
    if clock.cut:
        result.record["ended"] += f"; {clock.cut} of {options.n_chains} searches for a start were cut short"
    return result, verdict


def affordable(n_draws: int, thin: int, max_seconds: float, clock: Clock) -> int:
    """How many more draws there is time for, each with its sweeps, and all of them labelled and judged at the end."""
    looking = clock.since_sweeps
    left = (1.0 - SPARE) * (max_seconds - clock.spent) - looking
    each = thin * clock.seconds_a_sweep + looking / n_draws
    return max(0, int(min(n_draws, left / each) if each > 0.0 else n_draws))
