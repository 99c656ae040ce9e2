"""Samples in a basis in which most of them are zero: those with the same entries missing, each lot by itself
(docs/math.md, 3.20)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .matrix import BY_ROW, Data
from .patterns import patterns_of

Array = NDArray[np.float64]

TALL = 1.5  # samples to one that is left, from which on it is worth it
MOST_BYTES = 2**26  # of the data
KNOWN = (*BY_ROW, "n_observed", "unit_scale")  # which another basis does not change


@dataclass(frozen=True)
class Lot:
    """Samples that have the same entries missing, and the basis that they are taken to."""

    samples: NDArray[np.intp]  # (n,)
    places: slice  # of what they become
    basis: Array | None  # (m, n), orthonormal rows; None where they stay as they are


def alike_samples(data: Data) -> list[NDArray[np.intp]] | None:
    """The samples by what is missing; None where folding them cannot be done, or is not worth it."""
    if data.spool is not None or data.is_sparse or data.Y.nbytes > MOST_BYTES:
        return None
    if data.is_complete and data.design is not None:  # for which no iteration is compiled that knows of both
        return None
    lots = patterns_of(data).samples()
    return lots if data.n_samples >= TALL * sum(size_of(data, own) for own in lots) else None


def size_of(data: Data, samples: NDArray[np.intp]) -> int:
    """How many samples of a lot are not zero in its basis."""
    d = 0 if data.design is None else len(data.design.basis)
    seen = data.n_features if data.observed is None else int(data.observed[:, samples[0]].sum())
    return min(len(samples), seen + d)


def folded_samples(data: Data, alike: list[NDArray[np.intp]]) -> tuple[Data, list[Lot]]:
    """The data in bases of these lots, without the samples that are zero, and the bases; rows are known as before."""
    ends = np.cumsum([size_of(data, samples) for samples in alike])
    M, design = int(ends[-1]), data.design
    Y, repeats, lots = np.zeros((data.n_features, M)), np.ones(M), []
    seen = None if data.observed is None else np.ones((data.n_features, M), dtype=bool)
    C = np.zeros((0 if design is None else len(design.basis), M))
    for samples, end in zip(alike, ends.tolist(), strict=True):
        n, m = len(samples), size_of(data, samples)
        places, basis = slice(end - m, end), None
        own = np.asarray(data.Y[:, samples], np.float64)
        along = np.zeros((0, n)) if design is None else design.basis[:, samples]
        if m < n:
            known = own if data.observed is None else own[data.observed[:, samples[0]]]
            basis = np.ascontiguousarray(np.linalg.qr(np.vstack([known, along]).T)[0].T)
            own, along = own @ basis.T, along @ basis.T
        Y[:, places], C[:, places], repeats[places] = own, along, n / m
        if seen is not None and data.observed is not None:
            seen[:, places] = data.observed[:, samples[:1]]
        lots.append(Lot(samples, places, basis))
    known_of_all: dict[str, Any] = {name: getattr(data, name) for name in KNOWN}
    few = replace(
        data,
        Y=np.ascontiguousarray(Y, data.Y.dtype),
        observed=seen,
        sample_names=np.arange(M),
        design=None if design is None else replace(design, basis=C),
        n_folded=data.n_samples - M,
        repeats=None if seen is None else repeats,
    )
    vars(few).update(known_of_all)
    return few, lots


def with_room(few: Data, K: int) -> Data:
    """Folded data with samples of zeros for draws of K factors: so many stand for all that are outside the basis."""
    n = min(K, few.n_folded)
    Y = np.hstack([few.Y, np.zeros((few.n_features, n), few.Y.dtype)])
    own = replace(few, Y=Y, sample_names=np.arange(Y.shape[1]), n_folded=few.n_folded - n, n_gathered=n)
    vars(own).update({name: vars(few)[name] for name in KNOWN})
    return own
