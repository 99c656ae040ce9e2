"""Leave a local optimum by emptying a factor (math.md, 3.16).

Superfluous factors are a trap: each explains a little that the others, once it is gone, would explain as well, and the
ELBO charges for its activations, its slab precision and its inclusions. CAVI gets from the one optimum to the other
only by way of states that are worse than both, so the factor must be taken away at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..explained import is_empty
from ..kernels.contract import VIColumns, VIRows
from .cavi import CAVI, VIState


def emptied(cavi: CAVI, state: VIState, k: int) -> VIState:
    """The state with no loading on factor k and all that belongs to it at its prior, and one row pass."""
    return cavi.finish(*cleared(cavi, state.rows, state.columns, k), np.ones(cavi.prior.K))


def cleared(cavi: CAVI, rows: VIRows, columns: VIColumns, k: int) -> tuple[VIRows, VIColumns]:
    """q with no loading on factor k and all that belongs to it at its prior."""
    prior = cavi.prior
    others = (np.arange(prior.K) != k).astype(np.float64)  # by products: activations may be an engine's own
    if columns.f_var.ndim == 3:
        f_var = columns.f_var * np.outer(others, others) + np.diag(1.0 - others)
    else:
        f_var = columns.f_var * others[:, None] + (1.0 - others)[:, None]
    changed = columns._replace(
        f_mean=columns.f_mean * others[:, None],
        f_var=f_var,
        phi=columns.phi * np.outer(others, others) + np.diag(1.0 - others) if len(columns.phi) else columns.phi,
        alpha_shape=_with(columns.alpha_shape, k, prior.loading_shape),
        alpha_rate=_with(columns.alpha_rate, k, prior.loading_rate),
    )
    return cavi.engine.vi_clear(rows, k), cavi.inclusion.emptied(changed, k)


def is_empty_factor(cavi: CAVI, state: VIState) -> NDArray[np.bool_]:
    """(K,) whether each factor contributes nothing to the signal."""
    content = cavi.engine.vi_content(state.rows) * np.sum(state.columns.f_mean**2, axis=1)
    return is_empty(content, cavi.data.centred_ss)


def _with(values: np.ndarray, k: int, value: Any) -> np.ndarray:
    changed = np.array(values)
    changed[k] = value
    return changed
