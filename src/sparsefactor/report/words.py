"""A result in words: can it be trusted, and what does it say."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..frames import included
from ..frames import strongest as strongest_names
from ..posterior import MCMCPosterior, Status, VIPosterior
from ..reading.names import shown
from ..words import bound_sentence, percent, plural, warnings_about
from .sections import Level

MOST_TOLD = 5  # factors that the summary tells one by one
STABLE = 0.5  # a factor that a smaller share of the other restarts has is doubtful


def strongest(p: Any, k: int) -> str:
    """The features with the largest loadings on factor k, "-" before negative ones, as text that is safe to show."""
    sign = dict(zip(map(str, p.feature_names), p.loadings_mean[:, k] < 0, strict=True))
    return ", ".join(("-" if sign[name] else "") + shown(name) for name in strongest_names(p, k))


def verdict(p: VIPosterior | MCMCPosterior) -> tuple[Level, str]:
    """Whether the result can be used, and why, or what to do."""
    if isinstance(p, MCMCPosterior):
        found = p.diagnostics()
        return "good" if found.ok else "bad", found.verdict
    said = [p.certainty]
    doubtful = [str(k + 1) for k in np.flatnonzero(np.nan_to_num(p.stability, nan=1.0) < STABLE)]
    if doubtful:
        listed = " and ".join(filter(None, [", ".join(doubtful[:-1]), doubtful[-1]]))
        said.append(
            f"Factor{'s' if len(doubtful) > 1 else ''} {listed} appeared in few of the other restarts: interpret with "
            "caution, or check with sample."
        )
    if p.status is not Status.CONVERGED:
        return "bad", " ".join(["The fit has not converged.", p.status.value, *said])
    search = p.record.get("search", {})
    alone = search.get("restarts", 1) > 1 and not search.get("proposals", 0) and search.get("agreeing", 1) <= 1
    return "care" if doubtful or alone else "good", " ".join(["The fit converged.", *said])


def story(p: VIPosterior | MCMCPosterior) -> list[str]:
    """What was fitted and what was found, in sentences."""
    G, N, K = len(p.feature_names), len(p.sample_names), p.n_factors
    sums = p.fit_sums
    assert sums is not None
    missing = 1.0 - float(sums.count.sum()) / (G * N)
    empty = int(p.empty.sum())
    held = f"{percent(missing)} of the entries missing" if missing > 0 else "no entry missing"
    share = percent(p.variance_explained())
    lines = [
        f"{plural(N, 'sample')} of {plural(G, 'feature')} were given, {held}. "
        + (
            f"None of {plural(K, 'factor')} is needed: these data show no common signal."
            if empty == K
            else f"{plural(K - empty, 'factor')} {'explain' if K - empty > 1 else 'explains'} {share} of the variance"
            + (f"; {empty} more {'are' if empty > 1 else 'is'} empty." if empty else ".")
        )
    ]
    if chosen := bound_sentence(p):
        lines.append(chosen)
    shares, count = p.variance_explained(by="factor"), included(p)
    for k in range(min(K - empty, MOST_TOLD)):
        lines.append(
            f"Factor {k + 1} explains {percent(shares[k])} of the variance and includes "
            f"{plural(int(count[k]), 'feature')}; strongest: {strongest(p, k)}."
        )
    if K - empty > MOST_TOLD:
        lines.append(f"{K - empty - MOST_TOLD} more are listed below.")
    return [*lines, *warnings_about(p)]


def settings(p: Any) -> list[dict[str, str]]:
    """Version, date, data, prior and settings, a line each."""
    record, sums = p.record, p.fit_sums
    G, N = len(p.feature_names), len(p.sample_names)
    missing = 1.0 - float(sums.count.sum()) / (G * N)
    prior = p.prior
    inclusion = "learnt" if prior.learns_inclusion else "given"
    facts: dict[str, Any] = {
        "method": "Gibbs sampling" if isinstance(p, MCMCPosterior) else "variational inference",
        "sparsefactor": record.get("version", "not recorded"),
        "date": record.get("date", "not recorded"),
        "data": f"{N:,} samples x {G:,} features",
        "missing": f"{percent(missing)} ({int(G * N - sums.count.sum()):,} entries)",
        "centred": "yes" if np.any(p.labels.offset) else "no",
        "scaled": "yes" if np.any(p.labels.scale != 1.0) else "no",
        "inclusion": inclusion,
        "noise": "one for all" if prior.noise == "shared" else f"by {prior.noise}",
        "modules of features": f"up to {prior.n_modules}" if prior.n_modules > 1 else "none",
    }
    facts |= {name.replace("_", " "): value for name, value in record.get("settings", {}).items()}
    return [{"what": name, "value": str(value)} for name, value in facts.items()]
