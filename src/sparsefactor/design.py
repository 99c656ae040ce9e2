"""Known covariates of the samples, checked; and the directions that a model holds fixed for them (math.md, 1.11)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .checks import checked_choice
from .names import checked_names, shown

Array = NDArray[np.float64]

LOADINGS = ("flat", "slab")  # what is assumed of covariates' loadings
INTERCEPT = "(intercept)"
FLAT = 1e-6  # precision of a covariate's loadings, in units of the data: none to speak of
DEPENDENT = 1e-9  # of the largest singular value: a direction below this is a combination of the others


@dataclass(frozen=True, eq=False)
class Covariates:
    """What was given, and how it becomes directions of mean square one."""

    names: NDArray[Any]  # (c,)
    values: Array  # (n_samples, c)
    mean: Array  # (c,) what is subtracted first
    into: Array  # (c, d) from there to the directions

    def directions(self, values: Array) -> Array:
        """(n, d) of covariates (n, c)."""
        return np.asarray((values - self.mean) @ self.into)

    def loadings(self, base: Array) -> Array:
        """(..., c) the loadings of covariates as they were given, of those on the directions (..., d)."""
        return np.asarray(base @ self.into.T)


@dataclass(frozen=True, eq=False)
class Design:
    """Directions in the space of samples whose loadings are free; the first is all ones where there is an intercept."""

    basis: Array  # (d, n_samples)
    intercept: bool
    covariates: Covariates | None
    precision: float | None = None  # of the loadings on them; None: flat
    slab: bool = False  # whether the covariates' loadings have slabs whose precisions are learnt, one for each

    @property
    def learnt(self) -> NDArray[np.bool_]:
        """(d,) the directions whose loadings have a slab of their own; those of the others are all but flat."""
        return np.arange(len(self.basis)) >= (int(self.intercept) if self.slab else len(self.basis))

    def spread(self, var: Array) -> Array:
        """(n_features, c) standard deviations of the covariates' loadings, of variances (n_features, d)."""
        if self.covariates is None:
            return np.zeros((len(var), 0))
        return np.sqrt(var[:, int(self.intercept) :] @ (self.covariates.into**2).T)

    def intercepts(self, base: Array) -> Array:
        """(..., n_features) of loadings (..., n_features, d); zeros where there is no intercept."""
        return base[..., 0] if self.intercept else np.zeros(base.shape[:-1])

    def loadings(self, base: Array) -> Array:
        """(..., n_features, c) the covariates' loadings, of loadings (..., n_features, d)."""
        if self.covariates is None:
            return np.zeros((*base.shape[:-1], 0))
        return self.covariates.loadings(base[..., int(self.intercept) :])


def design_of(
    covariates: Any, sample_names: NDArray[Any], *, center: bool, holes: bool, loadings: str = "flat"
) -> Design | None:
    """The design for so many samples, or None where there is nothing to hold fixed.

    With holes, the mean of what is seen is not the mean: the intercept is then part of the model.
    """
    slab = checked_choice("covariate_loadings", loadings, LOADINGS) == "slab"
    given = None if covariates is None else checked_covariates(covariates, sample_names, center, slab)
    rows = [np.ones((1, len(sample_names)))] if center and holes else []
    if given is not None:
        rows.append(given.directions(given.values).T)
    if not rows:
        return None
    return Design(np.ascontiguousarray(np.vstack(rows)), center and holes, given, slab=slab and given is not None)


def checked_covariates(covariates: Any, sample_names: NDArray[Any], center: bool, slab: bool = False) -> Covariates:
    """Covariates (n_samples, c), matched by name where both have names; anything else is refused.

    Their directions are orthogonal where loadings are flat, which these then do not notice. A slab belongs to a
    covariate as it was given.
    """
    N = len(sample_names)
    values, names = read_covariates(covariates, sample_names)
    mean = values.mean(axis=0) if center else np.zeros(values.shape[1])
    apart = values - mean
    size = np.abs(values).max(axis=0, initial=0.0)
    still = np.abs(apart).max(axis=0, initial=0.0) <= 1e-12 * size
    if still.any():
        raise ValueError(
            f"a covariate must vary; {shown(names[int(np.argmax(still))])!r} does not; drop it"
            + (": the mean is removed as it is" if center else "")
        )
    spread = np.sqrt(np.mean(apart**2, axis=0))
    _, s, Vt = np.linalg.svd(apart / spread, full_matrices=False)
    kept = s > DEPENDENT * s[0]
    if kept.sum() > N - 2:
        raise ValueError(
            f"covariates must leave something to explain; got {int(kept.sum())} independent ones for {N} samples; "
            "pass fewer"
        )
    into = np.diag(1.0 / spread) if slab else (Vt[kept].T / s[kept]) * np.sqrt(N) / spread[:, None]
    return Covariates(names, values, mean, into)


def read_covariates(covariates: Any, sample_names: NDArray[Any], wanted: NDArray[Any] | None = None) -> tuple[Any, Any]:
    """(n, c) values as numbers, and (c,) names; wanted: the names that they must have, where they have any."""
    names = getattr(covariates, "columns", None)
    index = getattr(covariates, "index", None)
    if hasattr(covariates, "to_frame") and names is None:  # a Series
        covariates = covariates.to_frame()
        names = covariates.columns
    if wanted is not None and names is not None and len(wanted) and str(wanted[0]) != "covariate 1":
        absent = [str(name) for name in wanted if name not in set(map(str, names))]
        if absent:
            raise ValueError(f"covariates must have those of the fit; {shown(absent[0])!r} is lacking; add it")
        covariates = covariates[list(wanted)]
        names = covariates.columns
    if index is not None and not callable(index):
        rows = matching_rows(index, sample_names, "covariates")
        covariates = covariates if rows is None else covariates.iloc[rows]
    try:
        values = np.asarray(covariates, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            "covariates must be numbers; some are not; turn labels into columns first: pandas.get_dummies(...)"
        ) from None
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or len(values) != len(sample_names) or not values.shape[1]:
        raise ValueError(
            f"covariates must be (n_samples, c); got shape {values.shape} for {len(sample_names)} samples; transpose "
            "or select"
        )
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        raise ValueError(
            f"covariates must be known for every sample; that of sample {shown(sample_names[row])}, column {column}, "
            f"is {values[row, column]}; fill it in, or drop the sample"
        )
    count = values.shape[1]
    return values, checked_names(
        [f"covariate {i + 1}" for i in range(count)] if names is None else list(names), count, "covariate"
    )


def matching_rows(index: Any, sample_names: NDArray[Any], what: str) -> list[int] | None:
    """Where in a frame's index each sample is; None where one of the two has no names, so that their order decides."""
    if sample_names.dtype.kind in "iu":
        return None
    place = {str(name): at for at, name in enumerate(index)}
    lacking = [str(name) for name in sample_names if str(name) not in place]
    if not lacking:
        if len(place) < len(index):
            count = Counter(str(name) for name in index)
            if several := [str(name) for name in sample_names if count[str(name)] > 1]:
                raise ValueError(
                    f"{what} must have one row for each sample; {shown(several[0])!r} has {count[several[0]]} "
                    f"({len(several)} such in all); keep one of them"
                )
        return [place[str(name)] for name in sample_names]
    if list(index) == list(range(len(index))):
        return None
    given = ", ".join(shown(str(name), 20) for name in index[:3]) + (", ..." if len(index) > 3 else "")
    if what == "covariates":
        remedy = "add them, or drop these samples"
    else:
        remedy = f"add them, with missing values where nothing is known: {what}.reindex(p.sample_names)"
    raise ValueError(
        f"{what} must have a row for every sample; {shown(lacking[0])!r} has none ({len(lacking)} such in all) among "
        f"{given}; {remedy}"
    )
