"""The report of any posterior: can it be trusted, what does it say, its factors, how it was made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import plot
from ..frames import included
from ..posterior import MCMCPosterior, VIPosterior
from ..words import percent, plural
from . import sections, words
from .figures import figure
from .page import render
from .sections import Section


def posterior_page(
    p: VIPosterior | MCMCPosterior,
    *,
    title: str = "Sparse factor analysis",
    spelt: Callable[[str], str] = str,
) -> str:
    """One page for a posterior of either kind. spelt: settings in remedies as the reader writes them; as in Python."""
    G, N, K = len(p.feature_names), len(p.sample_names), p.n_factors
    method = "variational inference" if isinstance(p, VIPosterior) else "Gibbs sampling"
    level, verdict = words.verdict(p)
    shown = [
        sections.verdict("Verdict and summary", level, spelt(verdict), [spelt(line) for line in words.story(p)]),
        sections.table(
            "Factors at a glance",
            factor_rows(p),
            "A factor's share is what leaving it out would cost of the data's variance; features are in a factor where "
            "that is more likely than not.",
        ),
        figure(
            "Variance explained",
            plot.variance_explained(p),
            "Bars: " + "; ".join(f"factor {k + 1} {percent(s)}" for k, s in enumerate(_shares(p)) if not p.empty[k]),
            "What leaving each factor out would cost, in percent of the data's variance.",
        ),
        *group_sections(p),
        sections.factors(
            "Factors and their features",
            loadings=p.loadings_mean,
            shares=np.where(p.empty, 0.0, _shares(p)),
            loadings_sd=p.loadings_sd,
            inclusion=p.inclusion_prob,
            activations=p.activations_mean,
            feature_names=p.feature_names,
            sample_names=p.sample_names,
            note="Choose a factor; search features by name; press a column's name to sort.",
        ),
        figure(
            "Probability of inclusion",
            plot.heatmap(p),
            f"Heatmap of {plural(G, 'feature')} by the factors that hold something, dark where a feature is in one. "
            f"Features in each: {', '.join(str(n) for n in included(p)[~p.empty])}.",
            "Features with the same factors stand together, in the order of the factors; those in none come last.",
        ),
        *(vi_sections(p) if isinstance(p, VIPosterior) else mcmc_sections(p)),
        sections.table("Settings and data", words.settings(p)),
    ]
    return render(title, f"{N:,} samples, {G:,} features, {K} factors, by {method}", shown)


def _shares(p: Any) -> Any:
    return p.variance_explained(by="factor")


def factor_rows(p: VIPosterior | MCMCPosterior) -> list[dict[str, Any]]:
    """A line per factor: share of variance in percent, features in, the strongest of them, how sure it is."""
    share, empty, count = _shares(p), p.empty, included(p)
    table = p.summary()
    rows: list[dict[str, Any]] = []
    for k in range(p.n_factors):
        row = {
            "factor": k + 1,
            "share of variance (%)": 0.0 if empty[k] else 100 * float(share[k]),
            "features in": int(count[k]),
            "strongest": "empty" if empty[k] else words.strongest(p, k),
        }
        if isinstance(p, MCMCPosterior):
            row["R-hat"] = float(table["r_hat"].iloc[k])
        elif np.isfinite(p.stability).any():
            row["stability"] = float(p.stability[k])
        rows.append(row)
    return rows


def module_rows(p: VIPosterior) -> list[dict[str, Any]]:
    """A line per module that holds a feature: how many, and how likely these are to be in each factor."""
    assert p.module_prob is not None
    assert p.module_rate_mean is not None
    size = p.module_prob.sum(axis=0)
    return [
        {"module": m + 1, "features": round(float(size[m]), 1)}
        | {f"factor {k + 1}": round(float(rate), 3) for k, rate in enumerate(p.module_rate_mean[m])}
        for m in range(len(size))
        if size[m] >= 0.5
    ]


def group_sections(p: VIPosterior | MCMCPosterior) -> list[Section]:
    """Where features are in known groups: which factors are in which of them."""
    if not p.prior.grouped:
        return []
    empty = p.empty_by_group
    held = [
        f"{name}: {', '.join(str(k + 1) for k in np.flatnonzero(~row)) or 'none'}"
        for name, row in zip(p.prior.group_names, empty, strict=True)
    ]
    return [
        figure(
            "Variance explained by group",
            plot.variance_by_group(p),
            f"Heatmap of groups of features by factors. Factors in each group: {'; '.join(held)}.",
            "What leaving a factor out would cost, in percent of the variance of each group of features.",
        )
    ]


def vi_sections(p: VIPosterior) -> list[Section]:
    elbos = [float("nan") if record["elbo"] is None else float(record["elbo"]) for record in p.trial_records]
    rows = [
        {"trial": int(record["trial"]) + 1, "ELBO": elbo, "below the best": f"{max([p.elbo, *elbos]) - elbo:,.3f}"}
        | {
            name.replace("_", " "): ("" if value is None else value)
            for name, value in record.items()
            if name not in ("trial", "elbo", "won")
        }
        | {"won": "yes" if record.get("won") else ""}
        for record, elbo in zip(p.trial_records, elbos, strict=True)
    ]
    found = [sections.table("Modules of features", module_rows(p))] if p.module_prob is not None else []
    found.append(sections.table("Trials", rows, "Each start climbs by itself; most are dropped on the way."))
    if len(p.elbo_history["elbo"]) > 1:
        found.append(
            figure(
                "The ELBO's climb",
                plot.elbo(p),
                f"Lines of the ELBO of {plural(len(p.trial_records), 'restart')} over iterations; the best ends at "
                f"{p.elbo:,.3f}.",
                "Left: the ELBO. Right: how far it is below the best, on a log scale. Thick: the selected one.",
            )
        )
    return found


def mcmc_sections(p: MCMCPosterior) -> list[Section]:
    table = p.diagnostics().table
    rows = [
        {
            "subject": str(subject),
            "R-hat": float(line["r_hat"]),
            "effective draws, bulk": float(line["ess_bulk"]),
            "effective draws, tails": float(line["ess_tail"]),
            "mixes worst": str(line["worst"]).replace("_", " "),
        }
        for subject, line in table.iterrows()
    ]
    chains = f"{plural(p.n_chains, 'chain')} of {plural(p.permutations.shape[1], 'draw')}"
    worst = float(np.nanmax(table["r_hat"])) if table["r_hat"].notna().any() else float("nan")
    return [
        sections.table(
            "Convergence",
            rows,
            "R-hat near 1 and many effective draws: the chains agree. The worst of each is shown.",
        ),
        figure(
            "Traces",
            plot.trace(p),
            f"Lines of {chains}: log joint density and size of the strongest factors' loadings, draw by draw. The "
            f"largest R-hat is {worst:.3f}.",
            "After relabelling. Chains that agree lie on top of each other, without drift.",
        ),
        figure(
            "Ranks",
            plot.rank(p),
            f"Histograms of ranks of {chains}, a line for each chain; the largest R-hat is {worst:.3f}.",
            "Where chains agree, every chain's ranks are flat (dotted line).",
        ),
        figure(
            "Agreement between chains",
            plot.agreement(p),
            "Heatmap of the cosine between each chain's mean activations and those of all chains, by factor.",
            "1: the chain has the same factor.",
        ),
    ]
