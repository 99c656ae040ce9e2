"""One posterior's factors against those of a truth or of another posterior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .labelling import Array, Signs
from .pairs import assignment, unit


@dataclass(frozen=True, eq=False)
class Matching:
    """Which factor of a posterior stands for each factor of a reference.

    permutation: (n_reference,) the posterior's factor, or -1 where none is left; signs: (n_reference,).
    similarity: (n_reference,) in [0, 1], the mean of the activations' and the loadings' cosine.
    unmatched: the posterior's factors that stand for none. missing: the reference's factors that have none.
    """

    permutation: NDArray[np.intp]
    signs: Signs
    similarity: Array
    unmatched: NDArray[np.intp]

    @property
    def missing(self) -> NDArray[np.intp]:
        return np.flatnonzero(self.permutation < 0)

    def apply(self, values: ArrayLike, *, signed: bool = True) -> NDArray[Any]:
        """(..., n_factors) in the posterior's order to (..., n_reference) in the reference's; zeros where missing."""
        old = np.asarray(values)
        found = self.permutation >= 0
        new = np.zeros((*old.shape[:-1], len(found)), dtype=old.dtype)
        new[..., found] = old[..., self.permutation[found]]
        if signed:
            new *= self.signs
        return new


def match(p: Any, reference: Any) -> Matching:
    """Match the factors of one posterior (or truth) to those of another, over permutations and signs.

    The assignment maximises the sum over pairs of |cos(f, f') + cos(l, l')|. Both matrices take part, since either
    alone may be ambiguous (two factors active in the same samples, or on the same features); the cosines are added
    before the absolute value, since one sign must serve both. Where the numbers of factors differ, some stay
    without a partner.

    Parameters
    ----------
    p, reference : posterior or Simulation
        With loadings_mean and activations_mean, or loadings and activations.

    Returns
    -------
    Matching
        For each factor of the reference: `permutation` (p's factor from 0, or -1), `signs` and `similarity` (0 to 1);
        `apply(values)` puts p's values into the reference's order.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.2], snr=4, seed=0)
    >>> p = sf.fit_vi(sim.X, n_factors=2, n_trials=2)
    >>> found = sf.match(p, sim)
    >>> found.apply(p.loadings_mean).shape
    (40, 2)
    """
    L, F = _loadings_and_activations(p)
    L_ref, F_ref = _loadings_and_activations(reference)
    if len(L) != len(L_ref) or len(F) != len(F_ref):
        raise ValueError(
            "both sides must have the same features and samples; got "
            f"{len(L)} and {len(L_ref)} features, {len(F)} and {len(F_ref)} samples; select the common ones"
        )
    agreement = 0.5 * (unit(F_ref).T @ unit(F) + unit(L_ref).T @ unit(L))
    rows, columns = assignment(-np.abs(agreement))
    permutation = np.full(L_ref.shape[1], -1, dtype=np.intp)
    permutation[rows] = columns
    signs = np.ones(len(permutation), dtype=np.int8)
    signs[rows] = np.where(agreement[rows, columns] < 0, -1, 1)
    similarity = np.zeros(len(permutation))
    similarity[rows] = np.minimum(np.abs(agreement[rows, columns]), 1.0)  # a cosine may round above one
    return Matching(permutation, signs, similarity, np.setdiff1d(np.arange(L.shape[1]), columns))


def _loadings_and_activations(p: Any) -> tuple[Array, Array]:
    for loadings, activations in (("loadings_mean", "activations_mean"), ("loadings", "activations")):
        if hasattr(p, loadings) and hasattr(p, activations):
            return np.asarray(getattr(p, loadings)), np.asarray(getattr(p, activations))
    raise TypeError(
        f"both sides must have loadings and activations (or their means); got a {type(p).__name__}; pass a posterior "
        "or a Simulation"
    )
