"""Runs that go on by themselves until their chains agree."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

from ..diagnostics import Verdict, judge
from ..posterior import MCMCPosterior
from .options import Options
from .watch import Watcher

logger = logging.getLogger("sparsefactor")

DOUBLINGS = 4  # of n_draws, at most


def run_until(stretches: Iterator[MCMCPosterior], options: Options, watcher: Watcher) -> tuple[MCMCPosterior, Verdict]:
    """The first posterior that is good enough, or the last that may be had, and its verdict, which says how it ended.

    What is decided depends on the draws alone, unless max_seconds ends it.
    """
    begun, stretch, reason = time.monotonic(), 0, ""
    while True:
        result = next(stretches)
        verdict = judge(result)
        n_draws = result.permutations.shape[1]
        if options.until is None or verdict.ok or watcher.stopped:
            break
        if stretch == DOUBLINGS or n_draws >= options.n_draws << DOUBLINGS:
            reason = f"it has {n_draws // options.n_draws} times n_draws={options.n_draws}"
            break
        spent = time.monotonic() - begun
        share = n_draws / (options.n_warmup / options.thin + n_draws)
        if options.max_seconds is not None and spent * (1.0 + share) > options.max_seconds:
            reason = f"twice the draws would take more than max_seconds={options.max_seconds:g}"
            break
        logger.info("%d draws are not enough: %s", n_draws, verdict.text)
        stretch += 1
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
    return result, verdict
