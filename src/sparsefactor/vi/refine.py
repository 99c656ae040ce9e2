"""Continue from a fit with a thorough search."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..data import as_data, is_in_memory
from ..notices import unwarned, warn
from ..posterior import VIPosterior
from ..start import Start
from .fit import ConvergenceWarning, fit_vi

SAME = ("max_iter", "rtol", "race", "accelerate", "activations")  # settings that are taken from the fit
OWN = ("init", "search", "prior", "n_factors", "inclusion", "center", "scale", "covariate_loadings", "average", "path")
CLOSE = 1e-6  # relative difference of sums over the data of the fit and over X that rounding may make


def refine(fit: VIPosterior, X: Any, **options: Any) -> VIPosterior:
    """The better of a fit and the result of a thorough search that starts from it."""
    given = [name for name in OWN if name in options]
    if given:
        raise ValueError(f"refine takes {given[0]} from the fit, or does not have it; got one; leave it out")
    if fit.signal_mean is not None:
        raise ValueError("refine needs a single solution; got an average; fit without average=True first")
    labels, settings = fit.labels, fit.record.get("settings", {})
    known, passed = labels.covariates.shape[1] > 0, options.get("covariates") is not None
    if known != passed:
        names = ", ".join(map(str, labels.covariate_names)) or "none"
        raise ValueError(f"refine needs the covariates of the fit ({names}); got {'some' if passed else 'none'}")
    own = {name: settings[name] for name in SAME if name in settings}
    own["center"] = bool(labels.intercept or np.any(labels.offset != 0))
    own["scale"] = bool(np.any(labels.scale != 1))
    if is_in_memory(X):
        check_data(fit, X, own["center"], own["scale"])
    own["covariate_loadings"] = "slab" if labels.covariate_slab else "flat"
    start = Start("refined", fit.loadings_mean, np.ascontiguousarray(fit.activations_mean.T))
    with unwarned(ConvergenceWarning):
        new = fit_vi(X, fit.prior, init=[start], search="thorough", **own, **options)
    if new.elbo <= fit.elbo:  # the same solution, of which more is known
        return replace(fit, record=fit.record | {"search": new.record["search"] | {"improved": 0}})
    if not new.converged:
        warn(f"The fit has not converged. {new.status.value}", ConvergenceWarning)
    return new


def check_data(fit: VIPosterior, X: Any, center: bool, scale: bool) -> None:
    """Refuse data that are not those of the fit."""
    data, labels, sums = as_data(X, center=center, scale=scale), fit.labels, fit.fit_sums
    shapes = (len(labels.sample_names), len(labels.feature_names)), (data.n_samples, data.n_features)
    if shapes[0] != shapes[1]:
        raise ValueError(f"refine needs the data of the fit, of shape {shapes[0]}; got {shapes[1]}; pass the same X")
    for what, names, others in (
        ("features", labels.feature_names, data.feature_names),
        ("samples", labels.sample_names, data.sample_names),
    ):
        if others.dtype.kind != "i" and not np.array_equal(names.astype(str), others.astype(str)):
            raise ValueError(f"refine needs the {what} of the fit in their order; got others; pass the same X")
    same = np.allclose(data.scale, labels.scale, rtol=CLOSE, atol=0)
    if sums is not None:
        same &= np.array_equal(data.row_count, sums.count)
        if not labels.covariates.shape[1]:
            own = sums.total * sums.unit**2
            same &= np.allclose(data.centred_ss * data.unit**2, own, rtol=CLOSE, atol=CLOSE * float(own.max(initial=0)))
    if not same:
        raise ValueError("refine needs the data of the fit; got other values; pass the same X, or fit again")
