"""Tools for AnnData and MuData, as scanpy has them: results are written into the object."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import __version__
from ..annotated import from_anndata, from_mudata
from ..checks import checked_choice, checked_flag
from ..data import stays_sparse
from ..mcmc import sample
from ..model import Beta, Prior, checked_prior
from ..posterior import MCMCPosterior, VIPosterior
from ..vi import fit_vi

__all__ = ["sparse_factors"]

Array = NDArray[np.float64]
METHODS: dict[str, Any] = {"vi": fit_vi, "mcmc": sample}


def sparse_factors(
    adata: Any,
    n_factors: int | None = None,
    *,
    prior: Prior | None = None,
    inclusion: float | Beta | None = None,
    inference: str = "vi",
    layer: str | None = None,
    mask_var: Any = None,
    key_added: str = "sfa",
    overwrite: bool = False,
    copy: bool = False,
    **options: Any,
) -> Any:
    """Fit sparse factors to an AnnData or MuData, and write them into it.

    Zeros count as observed, in a sparse matrix too; NaN is missing. What is sparse stays so unless entries are NaN;
    what is backed is read in blocks, and held once, in `dtype`. Factors that the data do not support are left out; the
    strongest comes first.

    Parameters
    ----------
    adata : AnnData or MuData
        Of a MuData all modalities are fitted together.
    n_factors : int, optional
        Maximum number of factors; or pass a prior. Without both, as many as parallel analysis finds.
    prior : Prior, optional
        By default inclusion is learnt.
    inclusion : float or Beta, optional
        Instead of a prior; see `fit_vi`.
    inference : "vi" or "mcmc"
    layer : str, optional
        Fit this layer instead of X.
    mask_var : str or array, optional
        A boolean column of var, such as "highly_variable": the features to fit. The others' loadings are NaN.
    key_added : str
        Under which names the results go; see below.
    overwrite : bool
        Replace results that are there already under this key.
    copy : bool
        Leave adata as it is and return a copy with the results.
    **options
        Of `fit_vi` or `sample`.

    Returns
    -------
    None, or the copy. Written are, for key_added="sfa":
        obsm["X_sfa"] : (n_obs, factors) activations
        varm["sfa_loadings"], varm["sfa_inclusion_prob"], varm["sfa_lfsr"] : (n_vars, factors)
        var["sfa_noise_precision"] : where noise belongs to features
        uns["sfa"] : parameters, ELBO, variance explained (in all and by factor), correlations of the factors, noise
        precision, version

    Examples
    --------
    >>> sf.tl.sparse_factors(adata, 20, mask_var="highly_variable")  # doctest: +SKIP
    >>> sc.pp.neighbors(adata, use_rep="X_sfa")  # doctest: +SKIP
    """
    checked_choice("inference", inference, METHODS)
    if not (hasattr(adata, "obsm") and hasattr(adata, "varm") and hasattr(adata, "uns")):
        raise TypeError(f"adata must be an AnnData or a MuData; got a {type(adata).__name__}; use fit_vi for others")
    if not checked_flag("overwrite", overwrite):
        refuse_existing(adata, key_added)
    if checked_flag("copy", copy):
        if getattr(adata, "isbacked", False):
            raise ValueError(
                "copy must be False for an object that is backed by a file; got True; call adata.to_memory() first, or "
                "leave it out"
            )
        adata = adata.copy()
    count = len(adata.var_names)
    kept = np.ones(count, dtype=bool) if mask_var is None else boolean_column(adata.var, mask_var, count)
    prior = checked_prior(prior, n_factors, inclusion=inclusion)
    read = from_mudata if hasattr(adata, "mod") else from_anndata
    dtype = np.dtype(options.get("dtype", np.float64))
    given = read(adata, dtype, layer, None if mask_var is None else kept)
    own = {} if prior is not None else {"inclusion": inclusion}
    p = METHODS[inference](given, prior, **own, **options)
    settings = {"inference": inference, "n_factors": p.n_factors, "noise": p.prior.noise, "zeros": "observed"}
    if p.prior.parallel_analysis is not None:
        settings["n_factors_chosen_by"] = "parallel analysis"
    settings["held"] = f"{'sparse' if stays_sparse(given.values) else 'dense'}, {dtype}"
    named = {"layer": layer, "mask_var": mask_var if isinstance(mask_var, str) else None}
    write(adata, p, kept, key_added, settings | {name: value for name, value in named.items() if value is not None})
    return adata if copy else None


def write(
    adata: Any, p: VIPosterior | MCMCPosterior, kept: NDArray[np.bool_], key: str, settings: dict[str, Any]
) -> None:
    """Put a posterior into adata under `key`; kept: (n_vars,) the features that were fitted."""
    found = np.flatnonzero(~p.empty)

    def wide(values: Array) -> Array:
        out = np.full((len(kept), *values.shape[1:]), np.nan)
        out[kept] = values
        return out

    adata.obsm[f"X_{key}"] = p.activations_mean[:, found]
    adata.varm[f"{key}_loadings"] = wide(p.loadings_mean[:, found])
    adata.varm[f"{key}_inclusion_prob"] = wide(p.inclusion_prob[:, found])
    adata.varm[f"{key}_lfsr"] = wide(p.lfsr[:, found])
    notes: dict[str, Any] = {
        "params": settings,
        "variance_explained": float(p.variance_explained()),
        "variance_explained_by_factor": np.asarray(p.variance_explained(by="factor"))[found],
        "version": __version__,
    }
    if p.prior.correlated:
        notes["factor_correlation"] = np.asarray(p.factor_correlation_mean)[np.ix_(found, found)]
    if p.prior.noise == "feature":
        adata.var[f"{key}_noise_precision"] = wide(np.asarray(p.noise_precision_mean))
    else:
        notes["noise_precision"] = np.asarray(p.noise_precision_mean)
    if isinstance(p, VIPosterior):
        notes |= {"elbo": float(p.elbo), "converged": bool(p.converged)}
    adata.uns[key] = notes


def refuse_existing(adata: Any, key: str) -> None:
    """Results under this key are not lost by accident."""
    places = {
        "obsm": [f"X_{key}"],
        "varm": [f"{key}_loadings", f"{key}_inclusion_prob", f"{key}_lfsr"],
        "var": [f"{key}_noise_precision"],
        "uns": [key],
    }
    for place, names in places.items():
        for name in names:
            if name in getattr(adata, place):
                raise ValueError(
                    f"{place}[{name!r}] must be free; it holds something already; pass overwrite=True to replace it, "
                    "or another key_added"
                )


def boolean_column(frame: Any, mask: Any, size: int) -> NDArray[np.bool_]:
    """(size,) a mask given by the name of a boolean column, or as an array."""
    if isinstance(mask, str):
        if mask not in frame.columns:
            raise KeyError(f"mask_var must name a column of var; got {mask!r}; it has {list(frame.columns)}")
        mask = frame[mask]
    chosen = np.asarray(mask)
    if chosen.shape != (size,) or chosen.dtype != np.bool_:
        raise ValueError(
            f"mask_var must be {size} booleans, one for each feature; got {chosen.dtype} of shape {chosen.shape}; pass "
            "a boolean column of var"
        )
    if not chosen.any():
        raise ValueError("mask_var must keep at least one feature; it keeps none; check the column")
    return chosen
