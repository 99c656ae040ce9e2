"""What Gibbs sampling goes from and to."""

from __future__ import annotations

from typing import NamedTuple

from ..kernels.contract import NONE, Array, GibbsRows


class GibbsState(NamedTuple):
    """A draw. The rows' loadings are still to be multiplied by `scale`."""

    rows: GibbsRows
    F: Array  # (K, N)
    alpha: Array  # (K,), (K, V) with groups
    pi: Array  # as alpha, (K, M) with modules, or (0,) where inclusion is given
    tau: Array  # (N,) column-wise noise precision, or (0,) for noise="feature"
    scale: Array  # (K,)
    w: Array = NONE  # (M,) the modules' weights, where there are several
    phi: Array = NONE  # (K, K) correlations of the factors; none where they are uncorrelated


class GibbsInfo(NamedTuple):
    """What a sweep tells beside its draw."""

    log_joint: float
    n_active: int  # loadings
