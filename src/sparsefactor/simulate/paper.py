"""The paper's simulation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .draw import simulate
from .simulation import Simulation

# The paper's structure of Z: the ones of each factor, in fortieths of the features.
PAPER_BLOCKS = (
    ((30, 31), (36, 37), (39, 40)),
    ((6, 7), (20, 21), (22, 23), (36, 39)),
    ((0, 1), (5, 6), (20, 22), (30, 36)),
    ((0, 5), (20, 30)),
    ((0, 20),),
    ((0, 40),),
)


def simulate_paper(snr: float = 5, seed: int | np.random.Generator | None = 0, missing: float = 0.0) -> Simulation:
    """The paper's simulation: 800 features, 100 samples, five sparse factors and a dense one, the same Z for all.

    Parameters
    ----------
    snr : float
        Signal-to-noise ratio of every feature; the paper has 1, 5 and 25.
    seed : int, Generator or None
        Another seed, another data set with the same Z.
    missing : float
        Fraction of the entries made NaN, at random.

    Returns
    -------
    Simulation

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sf.simulate_paper(snr=5, seed=0).X.shape
    (100, 800)
    """
    return simulate(n_features=800, n_samples=100, inclusion=paper_inclusion(), snr=snr, missing=missing, seed=seed)


def paper_inclusion(n_features: int = 800) -> NDArray[np.bool_]:
    """(n_features, 6): the paper's block structure of Z; n_features a multiple of 40."""
    if n_features < 40 or n_features % 40:
        raise ValueError(
            f"the paper's structure needs a multiple of 40 features; got {n_features}; use the paper's 800"
        )
    Z = np.zeros((n_features, len(PAPER_BLOCKS)), dtype=bool)
    for k, blocks in enumerate(PAPER_BLOCKS):
        for start, stop in blocks:
            Z[start * n_features // 40 : stop * n_features // 40, k] = True
    return Z
