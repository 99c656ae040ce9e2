"""Results in a few words, and in a few lines of HTML for notebooks."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import numpy as np

from .frames import included, strongest
from .heywood import heywood_sentence
from .names import shown
from .outliers import outlier_sentence
from .standardized import SALIENT, dense_sentence, salient

if TYPE_CHECKING:
    from .posterior import MCMCPosterior, VIPosterior

MOST_LINES = 20  # factors that a notebook shows
EXPLAINED = "Share: variance lost if the factor is removed. A feature is included if its probability exceeds 0.5."
MOST_TOLD = 5  # factors that a report describes one by one


def percent(share: float) -> str:
    """A share with about two digits: 53.4 %, 5.3 %, 0.53 %, 0.05 %."""
    value = 100.0 * share
    if not np.isfinite(value):
        return "–"
    size = abs(value)
    digits = 0 if size >= 99.95 else 1 if size >= 0.995 else 2
    return f"{value:.{digits}f} %" if size >= 0.005 else "0 %"


def plural(n: int, word: str) -> str:
    return f"{n:,} {word}{'' if n == 1 else 's'}"


def stability_text(share: float) -> str:
    """The share of the other restarts that have a factor: "67 %"; "" where there are none."""
    return f"{100 * share:.0f} %" if np.isfinite(share) else ""


def headline(p: VIPosterior | MCMCPosterior) -> list[str]:
    """What the result is, in two lines, and `warnings_about` it."""
    G, N = len(p.feature_names), len(p.sample_names)
    first = f"{type(p).__name__}: {plural(N, 'sample')} x {plural(G, 'feature')}, {plural(p.n_factors, 'factor')}"
    if p.fit_sums is not None:
        empty = int(p.empty.sum())
        first += f" ({empty} empty)" if empty else ""
        first += f", {percent(p.variance_explained())} of the variance explained"
    facts = [said for said in (bound_sentence(p), correlation_sentence(p)) if said]
    return [first, how(p), *facts, *warnings_about(p)]


def bound_sentence(p: VIPosterior | MCMCPosterior) -> str:
    """How the number of factors was chosen, where it was left out; else an empty string."""
    if p.prior.parallel_analysis is None:
        return ""
    count = 0 if p.fit_sums is None else int((~p.empty).sum())
    used = "" if p.fit_sums is None else f"; {count} {'is' if count == 1 else 'are'} used"
    return f"Number of factors: at most {p.prior.parallel_analysis}, by parallel analysis{used}."


def warnings_about(p: VIPosterior | MCMCPosterior) -> list[str]:
    """Sentences on factors with nearly all features, features explained almost perfectly, and dominant samples."""
    return [said for said in (dense_sentence(p), heywood_sentence(p), outlier_sentence(p)) if said]


def correlation_sentence(p: VIPosterior | MCMCPosterior) -> str:
    """The strongest correlation between factors, where correlations were learnt; else an empty string."""
    used = np.zeros(0, int) if p.fit_sums is None else np.flatnonzero(~p.empty)
    if not p.prior.correlated or len(used) < 2:
        return ""
    among = np.tril(np.asarray(p.factor_correlation_mean)[np.ix_(used, used)], -1)
    k, l = np.unravel_index(np.argmax(np.abs(among)), among.shape)
    text = f"Strongest correlation between factors: {among[k, l]:.2f} (factors {used[l] + 1} and {used[k] + 1})."
    if p.record.get("search", {}).get("early"):
        text += " A default fit understates correlations; refine or sample estimates them."
    return text


def how(p: Any) -> str:
    """The method and how it ended, in a line."""
    if hasattr(p, "elbo"):
        n, proposals = len(p.trial_records), p.record.get("search", {}).get("proposals", 0)
        tried = plural(n, "restart") if n == 1 else f"best of {n} restarts"
        tried += f" and {proposals} attempts to improve it" if proposals else ""
        return f"variational inference, {tried}: ELBO {p.elbo:,.2f}, {p.status.name.lower().replace('_', ' ')}"
    n_chains, n_draws = p.permutations.shape[:2]
    said = {True: ", which agree", False: ", not reliable yet"}.get(p.record.get("trusted"), "")
    return f"Gibbs sampling: {plural(n_chains, 'chain')} of {plural(n_draws, 'draw')}{said}; see p.verdict"


def story(p: VIPosterior | MCMCPosterior) -> list[str]:
    """What was fitted and what was found, in sentences."""
    G, N, K = len(p.feature_names), len(p.sample_names), p.n_factors
    empty, entries = int(p.empty.sum()), _missing(p)
    missing = f"{percent(entries / (G * N))} of the entries are" if entries else "no entry is"
    lines = [f"{plural(N, 'sample')} x {plural(G, 'feature')}; {missing} missing."]
    if empty == K:
        lines[0] += f" None of {plural(K, 'factor')} is needed: these data show no common signal."
    else:
        lines[0] += f" {plural(K - empty, 'factor')} explain{'s' * (K - empty == 1)} {percent(p.variance_explained())}"
        lines[0] += (
            f" of the variance; {empty} more {'are' if empty > 1 else 'is'} empty." if empty else (" of the variance.")
        )
    if chosen := bound_sentence(p):
        lines.append(chosen)
    shares, count, large = p.variance_explained(by="factor"), included(p), salient(p)
    for k in range(min(K - empty, MOST_TOLD)):
        names = ", ".join(map(shown, strongest(p, k)))
        lines.append(
            f"Factor {k + 1} explains {percent(shares[k])} of the variance and includes "
            f"{plural(int(count[k]), 'feature')} ({large[k]} with a standardised loading of at least {SALIENT}); "
            f"strongest features: {names}."
        )
    if K - empty > MOST_TOLD:
        lines.append(f"{K - empty - MOST_TOLD} more factors are listed below.")
    if correlated := correlation_sentence(p):
        lines.append(correlated)
    return [*lines, *warnings_about(p)]


def _missing(p: Any) -> int:
    return len(p.feature_names) * len(p.sample_names) - int(p.fit_sums.count.sum())


def about(p: Any) -> list[dict[str, str]]:
    """How the result was made: version, date, data, prior and settings, a row each."""
    record, prior = p.record, p.prior
    G, N = len(p.feature_names), len(p.sample_names)
    missing = _missing(p)
    facts: dict[str, Any] = {
        "method": "variational inference" if hasattr(p, "elbo") else "Gibbs sampling",
        "sparsefactor": record.get("version", "not recorded"),
        "date": record.get("date", "not recorded"),
        "data": f"{N:,} samples x {G:,} features",
        "missing": f"{percent(missing / (G * N))} ({missing:,} entries)",
        "centred": "yes" if np.any(p.labels.offset) else "no",
        "scaled": "yes" if np.any(p.labels.scale != 1.0) else "no",
        "inclusion": "learnt" if prior.learns_inclusion else "given",
        "noise": "one for all" if prior.noise == "shared" else f"by {prior.noise}",
        "modules of features": f"up to {prior.n_modules}" if prior.n_modules > 1 else "none",
    }
    facts |= {name.replace("_", " "): value for name, value in record.get("settings", {}).items()}
    return [{"what": name, "value": str(value)} for name, value in facts.items()]


def as_html(p: VIPosterior | MCMCPosterior) -> str:
    """The headline and a row per factor, without R-hat, which needs every draw."""
    first, *others = (html.escape(line) for line in headline(p))
    head = f"<div><strong>{first}</strong><br>{'<br>'.join(others)}</div>"
    if p.fit_sums is None:
        return head
    share, empty, count = p.variance_explained(by="factor"), p.empty, included(p)
    lines = []
    for k in np.flatnonzero(~empty)[:MOST_LINES]:
        cells = (k + 1, percent(share[k]), count[k], ", ".join(strongest(p, k)))
        lines.append("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in cells) + "</tr>")
    names = ("factor", "share of variance", "features included (p > 0.5)", "strongest features")
    top = "<tr>" + "".join(f"<th>{name}</th>" for name in names) + "</tr>"
    left = int((~empty).sum()) - MOST_LINES
    more = f"<div>and {left} more: p.summary()</div>" if left > 0 else ""
    return f"{head}<table><thead>{top}</thead><tbody>{''.join(lines)}</tbody></table>{more}"
