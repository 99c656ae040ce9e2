"""Data without holes, for runs that only have to leave an optimum (docs/math.md, 3.18)."""

from __future__ import annotations

import numpy as np

from ..data import Data
from ..kernels.contract import Array, VIRows


def filled(data: Data, rows: VIRows, F: Array, rng: np.random.Generator) -> Data:
    """The data less what their design explains, what is missing drawn around E[L] F with each feature's noise."""
    assert data.observed is not None
    less = data.less(rows.base) if data.design is not None else data
    noise = rng.standard_normal(less.Y.shape) / np.sqrt(rows.tau)[:, None]
    Y = np.where(data.observed, less.Y, (rows.eta * rows.mu) @ F + noise)
    return Data(np.ascontiguousarray(Y), None, data.offset, data.feature_names, data.sample_names)
