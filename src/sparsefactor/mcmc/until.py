"""Runs that go on by themselves until their chains agree."""

from __future__ import annotations

import logging
from collections.abc import Generator
from dataclasses import replace

from ..diagnostics import ESS_PER_CHAIN, R_HAT_LIMIT, ChainsVerdict, judge
from ..posterior import MCMCPosterior
from .clock import Clock
from .look import Done, Stretch
from .options import Options
from .watch import Watcher

logger = logging.getLogger("sparsefactor")

DOUBLINGS = 4  # of n_draws, at most
LEAST = 0.25  # of the draws there are: to go on for fewer is not worth another look
SPARE = 0.1  # of the time that is left
NEARLY = 0.01, 0.7  # R-hat above its limit, and share of the effective draws wanted, that some draws may have at most


def run_until(
    stretches: Generator[Stretch | Done, int | None, None], options: Options, watcher: Watcher, clock: Clock
) -> tuple[MCMCPosterior, ChainsVerdict]:
    """The first posterior that is good enough, or the last that may be had, and its verdict, which says how it ended.

    What is decided depends on the draws alone, unless max_seconds ends it.
    """
    asked, reason, last = None, "", False
    while True:
        stretch = next(stretches) if asked is None else stretches.send(asked)
        going_on = options.until is not None and not watcher.stopped
        some = stretch.look() if going_on and not last else None
        if some is not None:
            verdict = judge(some)
            asked, reason = next_draws(stretch.n_draws, looked_at(some), options, clock)
            last = asked < 2 * stretch.n_draws
            if not nearly(verdict, some.n_chains) and not reason:
                logger.info("%d draws are not enough: %s", stretch.n_draws, verdict)
                continue
        result = stretch.result()
        verdict = judge(result)
        n_draws = result.permutations.shape[1]
        if not going_on or verdict.ok or watcher.stopped:
            break
        asked, reason = next_draws(n_draws, n_draws + looked_at(some), options, clock)
        if reason:
            break
        last = asked < 2 * n_draws
        logger.info("%d draws are not enough: %s", n_draws, verdict)
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
        verdict = replace(verdict, reasons=(*verdict.reasons, f"The run {result.record['ended']}."))
    if clock.cut:
        result.record["ended"] += f"; {clock.cut} of {options.n_chains} searches for a start were cut short"
    return result, verdict


def looked_at(some: MCMCPosterior | None) -> int:
    """Draws of each chain."""
    return 0 if some is None else int(some.permutations.shape[1])


def nearly(verdict: ChainsVerdict, n_chains: int) -> bool:
    """Whether all draws may be good enough where this is the verdict on some of them."""
    beyond, share = NEARLY
    return not (verdict.r_hat > R_HAT_LIMIT + beyond or verdict.ess < share * ESS_PER_CHAIN * n_chains)


def next_draws(n_draws: int, looked_at: int, options: Options, clock: Clock) -> tuple[int, str]:
    """With how many draws to go on, twice as many at most, and why not, if so; looked_at: since the last sweep."""
    most = options.n_draws << DOUBLINGS
    if n_draws >= most:
        return n_draws, f"it has {n_draws // options.n_draws} times n_draws={options.n_draws}"
    more = n_draws
    if options.max_seconds is not None:
        more = min(more, affordable(n_draws, looked_at, options.thin, options.max_seconds, clock))
    if more < LEAST * n_draws:
        return n_draws, f"a quarter more draws would take longer than max_seconds={options.max_seconds:g}"
    return min(n_draws + more, most), ""


def affordable(n_draws: int, looked_at: int, thin: int, max_seconds: float, clock: Clock) -> int:
    """How many more draws there is time for, each with its sweeps, and all of them labelled and judged at the end."""
    looking = clock.since_sweeps / looked_at
    left = (1.0 - SPARE) * (max_seconds - clock.spent) - looking * n_draws
    each = thin * clock.seconds_a_sweep + looking
    return max(0, int(min(n_draws, left / each) if each > 0.0 else n_draws))
