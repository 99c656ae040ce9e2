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
    return [first, how(p), *warnings_about(p)]


def warnings_about(p: VIPosterior | MCMCPosterior) -> list[str]:
    """What a reader must know of features with hardly any noise left, and of samples that dominate factors."""
    return [said for said in (heywood_sentence(p), outlier_sentence(p)) if said]


def how(p: Any) -> str:
    """How it was found, in a line."""
    if hasattr(p, "elbo"):
        trials = plural(len(p.trial_records), "trial")
        line = f"variational inference, best of {trials}: ELBO {p.elbo:,.2f}, {p.status.name.lower().replace('_', ' ')}"
        recurred = p.record.get("search", {}).get("recurred")  # not known of results of before it was kept
        if recurred is None:
            return line
        return line + (f", found {recurred + 1} times" if recurred else ", found once: see p.certainty")
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
