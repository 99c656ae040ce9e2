"""Results as named pandas frames, and a summary that fits on a screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .checks import checked_choice, checked_flag, checked_number
from .containers import index_like_input
from .outliers import dominating_samples, names_of
from .standardized import SALIENT, salient

if TYPE_CHECKING:
    import pandas

    from .posterior import MCMCPosterior, VIPosterior

STRONGEST = 3  # features named for each factor
INCLUDED = 0.5  # a feature is included in a factor where its probability exceeds this
CUTOFF = SALIENT  # standardised loadings below this are usually left blank in tables


def to_frame(
    p: VIPosterior | MCMCPosterior, what: str, *, standardized: bool = False, sort: bool = False, cutoff: float = 0.0
) -> pandas.DataFrame:
    """One of a posterior's results as a frame with names; TABLES lists them. The options are those of the loadings."""
    checked_choice("what", what, TABLES)
    if not (standardized or sort or cutoff):
        return TABLES[what](p)
    if what != "loadings":
        remedy = 'pass "loadings"' if what == "sorted_loadings" else "leave them out"
        raise ValueError(f'standardized, sort and cutoff are for "loadings"; got {what!r}; {remedy}')
    checked_number("cutoff", cutoff, "pass e.g. 0.3, or 0 to show every loading")
    values = p.standardized_loadings if checked_flag("standardized", standardized) else p.loadings_mean
    if checked_flag("sort", sort):
        return sorted_loadings(p, standardized, cutoff)
    frame = _named(p, "feature", values, p.factor_names)
    return frame.where(np.abs(values) >= cutoff)


def summary(p: VIPosterior | MCMCPosterior) -> pandas.DataFrame:
    """A row per factor; see `Posterior.summary`."""
    import pandas as pd

    share, empty = p.variance_explained(by="factor"), p.empty
    certainty = {"stability": p.stability} if hasattr(p, "stability") else {"r_hat": r_hat(p)}
    frame = pd.DataFrame(
        {
            "features": included(p),
            "salient": salient(p),
            "strongest": ["empty" if empty[k] else ", ".join(strongest(p, k)) for k in range(p.n_factors)],
            "share_of_variance": np.where(empty, 0.0, share),
            **certainty,
        },
        index=pd.RangeIndex(1, p.n_factors + 1, name="factor"),
    )
    dominating = dominating_samples(p)
    if dominating:
        frame["dominated_by"] = [names_of(p, dominating.get(k, [])) for k in range(p.n_factors)]
    if p.prior.factor_names is not None:
        frame.insert(0, "name", p.factor_names)
    return frame


def sorted_loadings(
    p: VIPosterior | MCMCPosterior, standardized: bool = True, cutoff: float = CUTOFF
) -> pandas.DataFrame:
    """Loadings as tables in articles have them: features grouped by their strongest factor, NaN below the cut-off.

    Within a group the strongest comes first; features without a loading at the cut-off come last. Empty factors are
    left out.
    """
    factors = np.flatnonzero(~p.empty)
    values = (p.standardized_loadings if standardized else p.loadings_mean)[:, factors]
    frame = _named(p, "feature", values, [p.factor_names[k] for k in factors])
    if not len(factors):
        return frame
    size = np.abs(values)
    largest = size.max(axis=1)
    order = np.lexsort((-largest, size.argmax(axis=1), largest < cutoff))
    return frame.where(size >= cutoff).iloc[order]


def included(p: VIPosterior | MCMCPosterior) -> NDArray[np.intp]:
    """(n_factors,) how many features each factor includes; none where it is empty."""
    return np.where(p.empty, 0, (p.inclusion_prob > INCLUDED).sum(axis=0))


def strongest(p: VIPosterior | MCMCPosterior, k: int, n: int = STRONGEST) -> list[str]:
    """The names of the features with the largest loadings on factor k, strongest first; "-" before negative ones."""
    loadings = p.loadings_mean[:, k]
    top = np.argsort(-np.abs(loadings), kind="stable")[:n]
    return [("-" if loadings[i] < 0 else "") + str(p.feature_names[i]) for i in top]


def r_hat(p: Any) -> NDArray[np.float64]:
    """(n_factors,) the worst R-hat of what belongs to each factor of draws."""
    table = p.diagnostics().table
    mine = [label for label in table.index if str(label).startswith("factor ")]
    return np.asarray(table.loc[mine, "r_hat"], dtype=np.float64)


# ---- the tables ---------------------------------------------------------------------------------------------------


def _index(p: Any, of: str) -> pandas.Index[Any]:
    """The index of features or samples, aligned with X's own, so that what else is known of them can be joined."""
    names, axis = (p.feature_names, 1) if of == "feature" else (p.sample_names, 0)
    return index_like_input(p.labels.container, names, axis, of)


def _named(p: Any, of: str, values: Any, columns: Any) -> pandas.DataFrame:
    import pandas as pd

    return pd.DataFrame(values, index=_index(p, of), columns=columns)


def _by(of: str, name: str) -> Callable[[Any], pandas.DataFrame]:
    return lambda p: _named(p, of, getattr(p, name), p.factor_names)


def _reconstruction(p: Any) -> pandas.DataFrame:
    return _named(p, "sample", p.predicted(), _index(p, "feature"))


def _features(p: Any) -> pandas.DataFrame:
    """A row per feature: how much of it is explained, its noise, how many factors it is in, and its mean."""
    import pandas as pd

    sums = p.fit_sums
    columns = {
        "variance_explained": p.variance_explained(by="feature"),
        "communality": p.communalities,
        "uniqueness": p.uniquenesses,
        "n_factors": ((p.inclusion_prob > INCLUDED) & ~p.empty).sum(axis=1),
        "observed": sums.count.astype(int),
        "offset": p.labels.offset,
    }
    if p.prior.noise == "feature":
        columns["noise_precision"] = p.noise_precision_mean
    return pd.DataFrame(columns, index=_index(p, "feature"))


def _trials(p: Any) -> pandas.DataFrame:
    if not hasattr(p, "trials"):
        raise ValueError('trials are those of variational inference; this result has draws; ask for "diagnostics"')
    return p.trials


def _diagnostics(p: Any) -> pandas.DataFrame:
    if not hasattr(p, "diagnostics"):
        raise ValueError('diagnostics are of draws; this result is variational; ask for "trials"')
    return p.diagnostics().table


def _discoveries(p: Any) -> pandas.DataFrame:
    return p.discoveries().set_index("factor")


def _correlation(p: Any) -> pandas.DataFrame:
    import pandas as pd

    return pd.DataFrame(p.factor_correlation_mean, index=p.factor_names, columns=p.factor_names)


TABLES: dict[str, Callable[[Any], Any]] = {
    "summary": summary,
    "sorted_loadings": sorted_loadings,
    "loadings": _by("feature", "loadings_mean"),
    "loadings_sd": _by("feature", "loadings_sd"),
    "inclusion": _by("feature", "inclusion_prob"),
    "factor_correlation": _correlation,
    "discoveries": _discoveries,
    "activations": _by("sample", "activations_mean"),
    "activations_sd": _by("sample", "activations_sd"),
    "reconstruction": _reconstruction,
    "features": _features,
    "trials": _trials,
    "diagnostics": _diagnostics,
}
