"""Results as named pandas frames, and a summary that fits on a screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .checks import checked_choice
from .containers import index_like_input
from .outliers import dominating_samples, names_of

if TYPE_CHECKING:
    import pandas

    from .posterior import MCMCPosterior, VIPosterior

STRONGEST = 3  # features named for each factor
INCLUDED = 0.5  # a feature is in a factor where that is more likely than not


def to_frame(p: VIPosterior | MCMCPosterior, what: str) -> pandas.DataFrame:
    """One of a posterior's results as a frame with names; TABLES lists them."""
    checked_choice("what", what, TABLES)
    return TABLES[what](p)


def summary(p: VIPosterior | MCMCPosterior) -> pandas.DataFrame:
    """A line per factor; see `Posterior.summary`."""
    import pandas as pd

    share, empty = p.variance_explained(by="factor"), p.empty
    frame = pd.DataFrame(
        {
            "features": included(p),
            "strongest": ["empty" if empty[k] else ", ".join(strongest(p, k)) for k in range(p.n_factors)],
            "share_of_variance": np.where(empty, 0.0, share),
            "stability": getattr(p, "stability", np.full(p.n_factors, np.nan)),
            "r_hat": r_hat(p),
        },
        index=pd.RangeIndex(1, p.n_factors + 1, name="factor"),
    )
    dominating = dominating_samples(p)
    if dominating:
        frame["dominated_by"] = [names_of(p, dominating.get(k, [])) for k in range(p.n_factors)]
    if p.prior.factor_names is not None:
        frame.insert(0, "name", p.factor_names)
    return frame


def included(p: VIPosterior | MCMCPosterior) -> NDArray[np.intp]:
    """(n_factors,) the features that are more likely in a factor than not; none where it is empty."""
    return np.where(p.empty, 0, (p.inclusion_prob > INCLUDED).sum(axis=0))


def strongest(p: VIPosterior | MCMCPosterior, k: int, n: int = STRONGEST) -> list[str]:
    """The names of the features with the largest loadings on factor k, strongest first."""
    top = np.argsort(-np.abs(p.loadings_mean[:, k]), kind="stable")[:n]
    return [str(p.feature_names[i]) for i in top]


def r_hat(p: VIPosterior | MCMCPosterior) -> NDArray[np.float64]:
    """(n_factors,) the worst R-hat of what belongs to each factor; NaN for variational inference."""
    if not hasattr(p, "diagnostics"):
        return np.full(p.n_factors, np.nan)
    table = p.diagnostics().table
    mine = [label for label in table.index if str(label).startswith("factor ")]
    return np.asarray(table.loc[mine, "r_hat"], dtype=np.float64)


# ---- the tables ---------------------------------------------------------------------------------------------------


def _feature_index(p: Any) -> pandas.Index[Any]:
    return index_like_input(p.labels.container, p.feature_names, 1, "feature")


def _sample_index(p: Any) -> pandas.Index[Any]:
    """Aligned with X's own index, so that what else is known of the samples can be joined."""
    return index_like_input(p.labels.container, p.sample_names, 0, "sample")


def _by_feature(name: str) -> Callable[[Any], pandas.DataFrame]:
    def table(p: Any) -> pandas.DataFrame:
        import pandas as pd

        return pd.DataFrame(getattr(p, name), index=_feature_index(p), columns=p.factor_names)

    return table


def _by_sample(name: str) -> Callable[[Any], pandas.DataFrame]:
    def table(p: Any) -> pandas.DataFrame:
        import pandas as pd

        return pd.DataFrame(getattr(p, name), index=_sample_index(p), columns=p.factor_names)

    return table


def _reconstruction(p: Any) -> pandas.DataFrame:
    import pandas as pd

    return pd.DataFrame(p.predicted(), index=_sample_index(p), columns=_feature_index(p))


def _features(p: Any) -> pandas.DataFrame:
    """A line per feature: how much of it is explained, its noise, how many factors it is in, and its mean."""
    import pandas as pd

    sums = p.fit_sums
    columns = {
        "variance_explained": p.variance_explained(by="feature"),
        "n_factors": ((p.inclusion_prob > INCLUDED) & ~p.empty).sum(axis=1),
        "observed": sums.count.astype(int),
        "offset": p.labels.offset,
    }
    if p.prior.noise == "feature":
        columns["noise_precision"] = p.noise_precision_mean
    return pd.DataFrame(columns, index=_feature_index(p))


def _trials(p: Any) -> pandas.DataFrame:
    if not hasattr(p, "trials"):
        raise ValueError('trials are what variational inference makes; this result has draws; ask for "diagnostics"')
    return p.trials


def _diagnostics(p: Any) -> pandas.DataFrame:
    if not hasattr(p, "diagnostics"):
        raise ValueError('diagnostics are of draws; this result is variational; ask for "trials"')
    return p.diagnostics().table


TABLES: dict[str, Callable[[Any], Any]] = {
    "summary": summary,
    "loadings": _by_feature("loadings_mean"),
    "loadings_sd": _by_feature("loadings_sd"),
    "inclusion": _by_feature("inclusion_prob"),
    "activations": _by_sample("activations_mean"),
    "activations_sd": _by_sample("activations_sd"),
    "reconstruction": _reconstruction,
    "features": _features,
    "trials": _trials,
    "diagnostics": _diagnostics,
}
