"""The report of any posterior: what was fitted, how it went, its factors."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import plot
from ..posterior import MCMCPosterior, Status, VIPosterior
from . import sections
from .page import render
from .sections import Section


def posterior_page(p: VIPosterior | MCMCPosterior, *, title: str = "Sparse factor analysis") -> str:
    """One page for a posterior of either kind."""
    G, N, K = len(p.feature_names), len(p.sample_names), p.n_factors
    method = "variational inference" if isinstance(p, VIPosterior) else "Gibbs sampling"
    shown = [
        sections.table("Summary", [{"what": name, "value": value} for name, value in summary(p).items()]),
        *(vi_sections(p) if isinstance(p, VIPosterior) else []),
        sections.table("Factors at a glance", factor_rows(p)),
        sections.factors(
            "Factors and their features",
            loadings=p.loadings_mean,
            shares=np.where(p.empty, 0.0, p.variance_explained(by="factor")),
            loadings_sd=p.loadings_sd,
            inclusion=p.inclusion_prob,
            activations=p.activations_mean,
            feature_names=p.feature_names,
            sample_names=p.sample_names,
            note="Choose a factor; search features by name; click a column to sort.",
        ),
        sections.heatmaps("Probability of inclusion", {"inclusion": p.inclusion_prob}),
    ]
    return render(title, f"{G:,} features, {N:,} samples, {K} factors, by {method}", shown)


def summary(p: VIPosterior | MCMCPosterior) -> dict[str, str]:
    """What a reader asks first, as text."""
    inclusion = "learnt" if p.prior.learns_inclusion else "fixed"
    facts = {
        "features": f"{len(p.feature_names):,}",
        "samples": f"{len(p.sample_names):,}",
        "factors": str(p.n_factors),
        "inclusion": inclusion if p.prior.n_modules == 1 else f"{inclusion}, up to {p.prior.n_modules} modules",
        "noise": p.prior.noise,
        "active loadings": f"{int((p.inclusion_prob > 0.5).sum()):,} of {p.inclusion_prob.size:,}",
    }
    if isinstance(p, VIPosterior):
        facts |= {"ELBO": f"{p.elbo:,.3f}", "status": f"{p.status.name.lower()}: {p.status.value}"}
        if p.signal_mean is not None:
            cut = p.status is Status.INTERRUPTED
            facts["predictions"] = f"mean over {'those that converged of ' if cut else ''}{len(p.trial_records)} trials"
    else:
        draws = p.permutations.shape[1]
        facts |= {"chains": str(p.n_chains), "draws of each": f"{draws:,}"}
    return facts


def factor_rows(p: Any) -> list[dict[str, Any]]:
    """A line per factor: share of variance, active features, the strongest of them."""
    share, empty = p.variance_explained(by="factor"), p.empty
    rows = []
    for k in range(p.n_factors):
        top = np.argsort(-np.abs(p.loadings_mean[:, k]), kind="stable")[:3]
        rows.append(
            {
                "factor": int(k) + 1,
                "share of variance": float(share[k]),
                "features in": int((p.inclusion_prob[:, k] > 0.5).sum()),
                "strongest": ", ".join(str(p.feature_names[i]) for i in top) if not empty[k] else "empty",
            }
        )
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


def vi_sections(p: VIPosterior) -> list[Section]:
    rows = [
        {name: ("" if value is None else value) for name, value in trial.items() if name != "won"}
        | {"won": "yes" if trial.get("won") else ""}
        for trial in p.trial_records
    ]
    found = [sections.table("Modules of features", module_rows(p))] if p.module_prob is not None else []
    found.append(sections.table("Trials", rows))
    seconds, elbo = np.asarray(p.elbo_history["seconds"]), np.asarray(p.elbo_history["elbo"])
    if len(seconds) > 1:
        # A geometric choice of at most a few hundred points draws the same line.
        chosen = np.unique(np.geomspace(1, len(seconds), 300).astype(int) - 1)
        line = plot.Line(seconds[chosen].tolist(), elbo[chosen].tolist(), "winning trial", True)
        found.append(
            sections.lines("The ELBO's climb", [plot.Panel("winning trial", "ELBO", [line])], [["winning trial"]])
        )
    return found
