"""Continue from a fit with a thorough search."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..notices import unwarned, warn
from ..posterior import VIPosterior
from ..start import Start
from .fit import ConvergenceWarning, fit_vi

SAME = ("max_iter", "rtol", "race", "accelerate", "activations")  # settings that are taken from the fit


def refine(fit: VIPosterior, X: Any, **options: Any) -> VIPosterior:
    """The better of a fit and the result of a thorough search that starts from it."""
    if fit.signal_mean is not None:
        raise ValueError("refine needs a single solution; got an average; fit without average=True first")
    start = Start("refined", fit.loadings_mean, np.ascontiguousarray(fit.activations_mean.T))
    settings = fit.record.get("settings", {})
    own = {name: settings[name] for name in SAME if name in settings}
    labels = fit.labels
    if labels.covariates.shape[1] and options.get("covariates") is None:
        names = ", ".join(map(str, labels.covariate_names))
        raise ValueError(f"refine needs the covariates of the fit ({names}); got none; pass covariates=...")
    own["center"] = bool(labels.intercept or np.any(labels.offset != 0))
    own["scale"] = bool(np.any(labels.scale != 1))
    own["covariate_loadings"] = "slab" if labels.covariate_slab else "flat"
    own |= options
    with unwarned(ConvergenceWarning):
        new = fit_vi(X, fit.prior, init=[start], search="thorough", **own)
    if new.elbo <= fit.elbo:
        return fit
    if not new.converged:
        warn(f"The fit has not converged. {new.status.value}", ConvergenceWarning)
    return new
