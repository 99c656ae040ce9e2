"""What users call: draws in, relabelled draws out."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import checked_count
from ..model import Prior
from ..posterior import OTHER_FACTOR, SIGNED, MCMCPosterior
from .labelling import MAX_ITER, Labelling, fixed_point

if TYPE_CHECKING:
    import xarray

logger = logging.getLogger("sparsefactor")


def relabel(
    draws: Any,
    *,
    prior: Prior | None = None,
    groups: ArrayLike | None = None,
    unit_norm: bool | None = None,
    max_iter: int = MAX_ITER,
) -> Any:
    """Find one labelling for many draws; only factors that share a prior may swap.

    `sample` does this by itself; call it for draws that come from elsewhere.

    Parameters
    ----------
    draws : array, MCMCPosterior or DataTree
        Activations (draw, n_samples, n_factors) or (chain, draw, n_samples, n_factors); or an MCMCPosterior or a
        DataTree with group "posterior".
    prior : Prior, optional
        Factors may swap where they share a label in prior.factor_groups(). An MCMCPosterior knows its prior;
        otherwise all factors may swap.
    groups : (n_factors,) labels, optional
        Instead of a prior: factors with equal labels may swap.
    unit_norm : bool, optional
        Compare activations scaled to unit norm; by default where there are several chains.
    max_iter : int
        Rounds of relabelling and averaging, at most.

    Returns
    -------
    Relabelling, or (relabelled DataTree, Relabelling)
        The first for an array of activations. It holds `permutations` and `signs` of every draw.

    Examples
    --------
    >>> import numpy as np
    >>> import sparsefactor as sf
    >>> F = np.random.default_rng(0).standard_normal((10, 2))
    >>> draws = np.stack([F, F[:, ::-1], -F])
    >>> found = sf.relabel(draws)
    >>> found.permutations.tolist(), found.converged
    ([[0, 1], [1, 0], [0, 1]], True)
    """
    if isinstance(draws, MCMCPosterior):
        prior = draws.prior if prior is None else prior
        draws = draws.draws
    is_tree = hasattr(draws, "to_dict") and hasattr(draws, "children")
    activations = _activations_of(draws) if is_tree else np.asarray(draws)
    if activations.ndim not in (3, 4) or 0 in activations.shape:
        raise ValueError(
            "activations must be (draw, n_samples, n_factors) or (chain, draw, n_samples, n_factors), none empty; got "
            f"shape {activations.shape}; transpose or reshape them"
        )
    if not np.isfinite(activations).all():
        raise ValueError("activations must be finite; got NaN or infinite entries; drop the draws that have them")
    max_iter = checked_count("max_iter", max_iter)
    labels = _checked_groups(prior, groups, activations.shape[-1])
    if unit_norm is None:
        unit_norm = activations.ndim == 4 and activations.shape[0] > 1
    lead = activations.shape[:-2]
    F = activations.reshape(-1, *activations.shape[-2:])
    found = fixed_point(F, lead, labels, bool(unit_norm), max_iter)
    if not found.converged:
        logger.warning("relabelling stopped at max_iter=%d before it reached a fixed point; raise max_iter", max_iter)
    return (_relabel_tree(draws, found), found) if is_tree else found


def _checked_groups(prior: Prior | None, groups: ArrayLike | None, K: int) -> NDArray[Any]:
    if groups is None:
        groups = np.zeros(K, dtype=np.intp) if prior is None else prior.factor_groups()
    labels = np.asarray(groups)
    if labels.shape != (K,):
        raise ValueError(
            f"groups must have one label per factor; got shape {labels.shape} and {K} factors; pass the prior of these "
            "draws, or one label each"
        )
    return labels


def _activations_of(draws: xarray.DataTree) -> NDArray[np.floating]:
    if "posterior" not in draws.children or "activations" not in draws["posterior"].data_vars:
        raise ValueError(
            f"draws must have a group 'posterior' with a variable 'activations'; got groups {list(draws.children)}; "
            "pass the draws of an MCMCPosterior"
        )
    activations = draws["posterior"]["activations"]
    return np.asarray(activations.transpose("chain", "draw", "observation", "factor").values)


def _relabel_tree(draws: xarray.DataTree, labelling: Labelling) -> xarray.DataTree:
    """A copy in which every variable with a factor axis of the group "posterior" is relabelled."""
    import xarray as xr

    groups = {path: node.to_dataset(inherit=False) for path, node in draws.subtree_with_keys}
    posterior = groups["posterior"]
    for name, variable in posterior.data_vars.items():
        if "factor" in variable.dims:
            ordered = variable.transpose("chain", "draw", ...)
            values = ordered.values
            for dim in {"factor", OTHER_FACTOR} & {*ordered.dims}:
                values = labelling.apply(values, signed=name in SIGNED, axis=ordered.dims.index(dim))
            posterior = posterior.assign({name: ordered.copy(data=values)})
    groups["posterior"] = posterior
    return xr.DataTree.from_dict(groups, name=draws.name)
