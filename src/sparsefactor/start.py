"""Starting points: point values of L and F from which VI climbs and chains set out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .data import Data
from .kernels.contract import Array


class Start(NamedTuple):
    """A named starting point. L: (G, K); F: (K, N)."""

    name: str
    L: Array
    F: Array


def random_start(data: Data, K: int, rng: np.random.Generator) -> Start:
    """The paper's start: every loading and activation an independent normal, at the data's scale."""
    scale = data.unit_scale() / np.sqrt(K)
    return Start(
        "random", scale * rng.standard_normal((data.n_features, K)), rng.standard_normal((K, data.n_samples))
    )
