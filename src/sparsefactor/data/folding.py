"""Complete data in a basis of the samples in which most of them are zero (docs/math.md, 3.20)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .matrix import BY_ROW, Data

TALL = 1.5  # samples to a feature, from which on it is worth it
MOST_BYTES = 2**26  # of the data


def is_tall(data: Data) -> bool:
    """Whether it can be done, and is worth it."""
    plain = data.is_complete and data.design is None and data.spool is None and not data.is_sparse
    return plain and data.n_samples >= TALL * data.n_features and data.Y.nbytes <= MOST_BYTES


def folded_samples(data: Data) -> tuple[Data, NDArray[np.float64]]:
    """The data in that basis, without the samples that are zero, and the basis (G, N); what is known of rows stays."""
    G = data.n_features
    Q, R = np.linalg.qr(np.asarray(data.Y, np.float64).T)
    known: dict[str, Any] = {name: getattr(data, name) for name in (*BY_ROW, "n_observed", "unit_scale")}
    Y = np.ascontiguousarray(R.T, data.Y.dtype)
    few = replace(data, Y=Y, sample_names=np.arange(G), n_folded=data.n_samples - G)
    vars(few).update(known)
    return few, np.ascontiguousarray(Q.T)
