"""Results in a few words, and in a few lines of HTML for notebooks."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import numpy as np

from .heywood import heywood_sentence
from .outliers import outlier_sentence

if TYPE_CHECKING:
    from .posterior import MCMCPosterior, VIPosterior

MOST_LINES = 20  # factors that a notebook shows


def percent(share: float) -> str:
    """A share with the digits it deserves: 53 %, 5.3 %, 0.53 %, 0.05 %."""
    value = 100.0 * share
    if not np.isfinite(value):
        return "–"
    size = abs(value)
    digits = 0 if size >= 99.95 else 1 if size >= 0.995 else 2
    return f"{value:.{digits}f} %" if size >= 0.005 else "0 %"


def plural(n: int, word: str) -> str:
    return f"{n:,} {word}{'' if n == 1 else 's'}"


def headline(p: VIPosterior | MCMCPosterior) -> list[str]:
    """What the result is, in two lines, and `warnings_about` it."""
    G, N = len(p.feature_names), len(p.sample_names)
    first = f"{type(p).__name__}: {plural(N, 'sample')} x {plural(G, 'feature')}, {plural(p.n_factors, 'factor')}"
    if p.fit_sums is not None:
        empty = int(p.empty.sum())
        first += f" ({empty} empty)" if empty else ""
        first += f", {percent(p.variance_explained())} of the variance explained"
    chosen = bound_sentence(p)
    return [first, how(p), *([chosen] if chosen else []), *warnings_about(p)]


def bound_sentence(p: VIPosterior | MCMCPosterior) -> str:
    """How the number of factors was chosen, where it was left out; else an empty string."""
    if p.prior.parallel_analysis is None:
        return ""
    count = 0 if p.fit_sums is None else int((~p.empty).sum())
    used = "" if p.fit_sums is None else f"; {count} {'is' if count == 1 else 'are'} used"
    return f"Number of factors: at most {p.prior.parallel_analysis}, by parallel analysis{used}."


def warnings_about(p: VIPosterior | MCMCPosterior) -> list[str]:
    """What a reader must know of features with hardly any noise left, and of samples that dominate factors."""
    return [said for said in (heywood_sentence(p), outlier_sentence(p)) if said]


def how(p: Any) -> str:
    """How it was found, in a line."""
    if hasattr(p, "elbo"):
        n, proposals = len(p.trial_records), p.record.get("search", {}).get("proposals", 0)
        tried = plural(n, "restart") if n == 1 else f"best of {n} restarts"
        tried += f" and {proposals} attempts to improve it" if proposals else ""
        return f"variational inference, {tried}: ELBO {p.elbo:,.2f}, {p.status.name.lower().replace('_', ' ')}"
    n_chains, n_draws = p.permutations.shape[:2]
    told = {True: ", which agree", False: ", not to be trusted yet"}.get(p.record.get("trusted"), "")
    drawn = f"{plural(n_chains, 'chain')} of {plural(n_draws, 'draw')}{told}"
    return f"Gibbs sampling: {drawn}; p.diagnostics() has the verdict"


def as_html(p: VIPosterior | MCMCPosterior) -> str:
    """The headline and a line per factor. R-hat is left to `summary`, since it takes a look at every draw."""
    first, *others = (html.escape(line) for line in headline(p))
    head = f"<div><strong>{first}</strong><br>{'<br>'.join(others)}</div>"
    if p.fit_sums is None:
        return head
    from .frames import included, strongest

    share, empty, count = p.variance_explained(by="factor"), p.empty, included(p)
    lines = []
    for k in np.flatnonzero(~empty)[:MOST_LINES]:
        cells = (k + 1, percent(share[k]), count[k], ", ".join(strongest(p, k)))
        lines.append("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in cells) + "</tr>")
    names = ("factor", "share of variance", "features", "strongest")
    top = "<tr>" + "".join(f"<th>{name}</th>" for name in names) + "</tr>"
    left = int((~empty).sum()) - MOST_LINES
    more = f"<div>and {left} more: p.summary()</div>" if left > 0 else ""
    return f"{head}<table><thead>{top}</thead><tbody>{''.join(lines)}</tbody></table>{more}"
