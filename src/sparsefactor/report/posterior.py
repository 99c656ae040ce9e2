"""The report of any posterior: its verdict, loadings, factors, samples, and how it was made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..frames import CUTOFF, included, sorted_loadings, strongest
from ..names import shown
from ..plot.base import off_screen
from ..posterior import MCMCPosterior, VIPosterior
from ..standardized import SALIENT, salient
from ..words import EXPLAINED, about, percent, plural, stability_text, story
from . import sections
from .figures import figure
from .page import render
from .sections import Section

CROWDED = 0.95  # share of loadings included beyond which a picture of inclusion says nothing


def posterior_page(
    p: VIPosterior | MCMCPosterior,
    *,
    title: str = "Sparse factor analysis",
    spelt: Callable[[str], str] = str,
) -> str:
    """One page for a posterior of either kind. spelt: settings in remedies as the reader writes them; as in Python."""
    with off_screen():
        page = posterior_sections(p, spelt)
    G, N, K = len(p.feature_names), len(p.sample_names), p.n_factors
    method = "variational inference" if isinstance(p, VIPosterior) else "Gibbs sampling"
    return render(title, f"{N:,} samples, {G:,} features, {K} factors, by {method}", page)


def posterior_sections(p: VIPosterior | MCMCPosterior, spelt: Callable[[str], str]) -> list[Section]:
    """The sections of the page, in order."""
    verdict = p.verdict
    shares = p.variance_explained(by="factor")
    return [
        sections.verdict(
            "Verdict and summary",
            verdict.level,
            spelt(verdict.sentence),
            spelt(verdict.details),
            [spelt(line) for line in story(p)],
        ),
        sections.loadings("Loadings", sorted_loadings(p), CUTOFF),
        sections.table(
            "Factors at a glance",
            factor_rows(p),
            f"{EXPLAINED} "
            + (
                "Stability: how many of the other restarts found the factor."
                if isinstance(p, VIPosterior)
                else "R-hat: the worst of what belongs to the factor; near 1 where chains agree."
            ),
        ),
        figure(
            "Variance explained",
            p.plot.variance_explained(),
            "Bars: " + "; ".join(f"factor {k + 1} {percent(s)}" for k, s in enumerate(shares) if not p.empty[k]),
            "Variance lost if the factor is removed, in percent of the variance of the data.",
        ),
        *group_sections(p),
        sections.factors(
            "Factors one by one",
            loadings=p.loadings_mean,
            shares=np.where(p.empty, 0.0, shares),
            loadings_sd=p.loadings_sd,
            inclusion=p.inclusion_prob,
            activations=p.activations_mean,
            feature_names=p.feature_names,
            sample_names=p.sample_names,
            note="Choose a factor; search features by name; click a column heading to sort.",
        ),
        *heatmaps(p),
        *correlations(p),
        *(vi_sections(p) if isinstance(p, VIPosterior) else mcmc_sections(p)),
        sections.table("Settings and data", about(p)),
    ]


def correlations(p: VIPosterior | MCMCPosterior) -> list[Section]:
    """The correlations of the factors, where they were learnt and there are two."""
    used = np.flatnonzero(~p.empty)
    if not p.prior.correlated or len(used) < 2:
        return []
    values = np.asarray(p.factor_correlation_mean)
    told = "; ".join(f"{k + 1} and {l + 1}: {values[k, l]:.2f}" for n, k in enumerate(used) for l in used[n + 1 :])
    return [
        figure(
            "Correlations of the factors",
            p.plot.factor_correlation(),
            f"Heatmap of the correlations of factors {told}",
            "Correlations of the factors' scores in the population, as the model estimates them.",
        )
    ]


def factor_rows(p: VIPosterior | MCMCPosterior) -> list[dict[str, Any]]:
    """A row per factor: share of variance, features included, the strongest of them, and how certain it is."""
    share, empty, count, salient_count = p.variance_explained(by="factor"), p.empty, included(p), salient(p)
    r_hat = p.summary()["r_hat"].to_numpy() if isinstance(p, MCMCPosterior) else None
    rows: list[dict[str, Any]] = []
    for k in range(p.n_factors):
        row = {
            "factor": k + 1,
            "share of variance (%)": 0.0 if empty[k] else 100 * float(share[k]),
            "features included (p > 0.5)": int(count[k]),
            f"salient (|loading| >= {SALIENT})": int(salient_count[k]),
            "strongest features": "empty" if empty[k] else ", ".join(map(shown, strongest(p, k))),
        }
        if r_hat is not None:
            row["R-hat"] = float(r_hat[k])
        elif isinstance(p, VIPosterior) and np.isfinite(p.stability).any():
            row["stability"] = stability_text(p.stability[k])
        rows.append(row)
    return rows


def heatmaps(p: VIPosterior | MCMCPosterior) -> list[Section]:
    """All loadings as a picture; inclusion as well, unless nearly everything is included."""
    count = included(p)[~p.empty]
    G = plural(len(p.feature_names), "feature")
    everything = count.sum() > CROWDED * len(p.feature_names) * max(len(count), 1)
    counts = ", ".join(str(n) for n in count)
    together = "Features with the same factors stand together, in the order of the factors."
    found = [
        figure(
            "All loadings",
            p.plot.heatmap("standardized"),
            f"Heatmap of the loadings of {G} on the factors that are not empty, red negative, blue positive.",
            f"Standardised loadings, blue positive, red negative. {together}"
            + (" Nearly every feature is included in every factor." if everything and len(count) else ""),
        )
    ]
    if not everything:
        found.append(
            figure(
                "Probability of inclusion",
                p.plot.heatmap(),
                f"Heatmap of {G} by the factors that are not empty, dark where a feature is included. Features "
                f"included in each: {counts}.",
                f"{together} Features that no factor includes come last.",
            )
        )
    return found


def module_rows(p: VIPosterior) -> list[dict[str, Any]]:
    """A row per module that is not empty: its features, and how likely these are to be included in each factor."""
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
    """Where features are in known groups: the variance of each that the factors explain."""
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
            p.plot.variance_by_group(),
            f"Heatmap of groups of features by factors. Factors in each group: {'; '.join(held)}.",
            "Variance lost if the factor is removed, in percent of the variance of each group of features.",
        )
    ]


def vi_sections(p: VIPosterior) -> list[Section]:
    elbos = [float("nan") if record["elbo"] is None else float(record["elbo"]) for record in p.trial_records]
    rows = [
        {"restart": int(record["trial"]) + 1, "ELBO": elbo, "ELBO gap": f"{max([p.elbo, *elbos]) - elbo:,.3f}"}
        | {
            name.replace("_", " "): ("" if value is None else value)
            for name, value in record.items()
            if name not in ("trial", "elbo", "won")
        }
        | {"selected": "yes" if record.get("won") else ""}
        for record, elbo in zip(p.trial_records, elbos, strict=True)
    ]
    found = [sections.table("Modules of features", module_rows(p))] if p.module_prob is not None else []
    found.append(
        sections.table(
            "Restarts",
            rows,
            "ELBO: the quantity that variational inference maximises, in nats. ELBO gap: difference to the best. Most "
            "restarts are dropped early.",
        )
    )
    if len(p.elbo_history["elbo"]) > 1:
        found.append(
            figure(
                "Convergence (ELBO)",
                p.plot.elbo(),
                f"Lines of the ELBO of {plural(len(p.trial_records), 'restart')} over iterations; the best ends at "
                f"{p.elbo:,.3f}.",
                "Left: the ELBO. Right: its gap to the best, on a log scale. Thick: the selected restart.",
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
            "slowest quantity": str(line["worst"]).replace("_", " "),
        }
        for subject, line in table.iterrows()
    ]
    chains = f"{plural(p.n_chains, 'chain')} of {plural(p.permutations.shape[1], 'draw')}"
    worst = float(np.nanmax(table["r_hat"])) if table["r_hat"].notna().any() else float("nan")
    return [
        sections.table(
            "Convergence",
            rows,
            "R-hat near 1 and many effective draws: the chains agree. Each row has the worst value of its subject.",
        ),
        figure(
            "Traces",
            p.plot.trace(),
            f"Lines of {chains}: log joint density and size of the strongest factors' loadings, draw by draw. The "
            f"largest R-hat is {worst:.3f}.",
            "After relabelling. Should look like a fuzzy caterpillar: the chains overlap, without drift.",
        ),
        figure(
            "Ranks",
            p.plot.rank(),
            f"Histograms of ranks of {chains}, a line for each chain; the largest R-hat is {worst:.3f}.",
            "Where the chains agree, the ranks of each are uniform (dotted line).",
        ),
        figure(
            "Agreement between chains",
            p.plot.agreement(),
            "Heatmap of the cosine between each chain's mean activations and those of all chains, by factor.",
            "1: the chain has the same factor.",
        ),
    ]
