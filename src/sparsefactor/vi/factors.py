"""Some of the factors of q, or all of them in another order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.contract import Array, VIColumns, VIRows
from ..kernels.protocol import Engine


def taken(
    engine: Engine,
    rows: VIRows,
    columns: VIColumns,
    order: NDArray[np.intp],
    signs: NDArray[Any] | None = None,
) -> tuple[VIRows, VIColumns]:
    """q of the factors in `order`, of which those with a negative sign are turned round."""
    columns = VIColumns(*map(np.asarray, columns))  # wherever they were: an engine may compile each step on its own
    sign = np.ones(len(order)) if signs is None else signs.astype(np.float64)

    def of(values: Array) -> Array:
        return values[order] if len(values) else values

    joint = columns.f_var.ndim == 3
    f_var = columns.f_var[:, order][:, :, order] * np.outer(sign, sign) if joint else columns.f_var[order]
    return (
        engine.vi_take(rows, order, sign),
        columns._replace(
            f_mean=columns.f_mean[order] * sign[:, None],
            f_var=f_var,
            alpha_shape=columns.alpha_shape[order],
            alpha_rate=columns.alpha_rate[order],
            pi_a=of(columns.pi_a),
            pi_b=of(columns.pi_b),
            own=of(columns.own),
            phi=columns.phi[order][:, order] * np.outer(sign, sign) if len(columns.phi) else columns.phi,
        ),
    )
