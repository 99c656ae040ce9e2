"""The border for samples that a fit has not seen: checked, matched by name, centred and scaled as its data were."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..annotated import is_sparse
from ..data import read_matrix
from ..data.sources import source_of
from ..data.spool import Spool
from ..design import read_covariates
from ..executors import Shared
from ..names import checked_names, shown
from ..posterior import Labels, MCMCPosterior, VIPosterior
from ..storage.moments import blocks

Array = NDArray[np.float64]
Question = Callable[..., Any]  # of a posterior and some samples

logger = logging.getLogger("sparsefactor")
BLOCK_ENTRIES = 4_000_000  # of new samples, looked at together
NAMED = 3  # so many names are spelt out in an error


@dataclass(frozen=True)
class Samples:
    """New samples with the features in the fit's order."""

    Y: Array  # (n, G) in the model's units, 0 where missing
    observed: NDArray[np.bool_]  # (n, G)
    values: Array  # (n, G) as they came
    order: NDArray[np.intp]  # (G,) where in X each feature was
    names: NDArray[Any]  # (n,) of the samples
    features: NDArray[Any]  # (G,) names in the order of X
    known: Any = 0.0  # (n, G) what covariates explain, in the model's units
    directions: Any = None  # (n, d) where the samples lie along the directions that the model holds fixed

    @property
    def complete(self) -> bool:
        return bool(self.observed.all())

    def one(self, j: int) -> Samples:
        """Sample j alone."""
        own = None if self.directions is None else self.directions[[j]]
        return replace(self, Y=self.Y[[j]], observed=self.observed[[j]], values=self.values[[j]], directions=own)

    @property
    def count(self) -> Array:
        """(n,) observed entries of each sample."""
        return self.observed.sum(axis=1, dtype=np.float64)


def new_samples(X: Any, labels: Labels, covariates: Any = None) -> Samples:
    """X: (n, n_features), NaN where missing, with the features of the fit in any order if both are named.

    covariates: (n, c), where the fit had some; what they explain is taken off.
    """
    return Border(X, labels, covariates).samples(slice(None))


class Border:
    """New samples on their way in: known by name, looked at and brought to the fit's units a part at a time.

    What is not in memory is written to a file once, sample by sample, as nobody knows how it is laid out where it is.
    """

    def __init__(self, X: Any, labels: Labels, covariates: Any = None) -> None:
        self.labels = labels
        self.spool: Any = None
        source = None if is_sparse(getattr(X, "X", None)) else source_of(X)
        if source is None:
            self.values, self.names, self.features, _ = read_matrix(X)
        else:
            self.names = checked_names(source.samples, source.shape[0], "sample")
            self.features = checked_names(source.features, source.shape[1], "feature")
        self.shape = (len(self.names), len(self.features))
        self.order = matched(self.features, self.shape[1], labels.feature_names)
        if covariates is not None and not len(labels.covariate_names):
            raise ValueError(
                "covariates must be those of the fit, which had none; got some; leave them out, or fit with them"
            )
        self.covariates = new_covariates(covariates, self.names, labels) if len(labels.covariate_names) else None
        if source is not None:
            self.spool = Spool()
            self.values = self.spool.empty(self.shape, source.dtype if source.dtype.kind == "f" else np.float64)
            source.fill(self.values, 0, self.shape[1], lambda: self.spool.release(self.values))

    def blocks(self) -> list[slice]:
        """Samples to be looked at together: so many that the answer does not depend on where X is."""
        return list(blocks(self.shape[0], max(1, BLOCK_ENTRIES // self.shape[1])))

    def room(self) -> Array:
        """(n, n_features) for an answer: in a file where X was not in memory."""
        return np.empty(self.shape) if self.spool is None else self.spool.empty(self.shape, np.float64)

    def answers(self, client: Any, question: Question, p: Any, *args: Any) -> Iterator[tuple[slice, Any]]:
        """question(p, samples, ...) of each block, made here or by the workers of a client's cluster."""
        if client is None:
            for rows in self.blocks():
                yield rows, question(p, self.samples(rows), *args)
            return
        jobs, waiting = Shared(client, p), deque[tuple[slice, Any]]()
        for rows in self.blocks():
            logger.info("samples %d to %d of %d are sent", rows.start + 1, rows.stop, self.shape[0])
            waiting.append((rows, jobs.submit(question, self.samples(rows), *args)))
            if len(waiting) > 2 * jobs.n_threads:  # no more than that is held at once
                first, job = waiting.popleft()
                yield first, jobs.results([job])[0]
        for first, job in waiting:
            yield first, jobs.results([job])[0]

    def samples(self, rows: slice) -> Samples:
        own = None if self.covariates is None else self.covariates[rows]
        part = checked(self.values[rows], self.names[rows], self.features, self.order, self.labels, own)
        if self.spool is not None:
            self.spool.release(self.values[rows])
        return part


def checked(
    given: Any, sample_names: NDArray[Any], feature_names: NDArray[Any], order: Any, labels: Labels, own: Array | None
) -> Samples:
    """Some samples; own: (n, c) their covariates."""
    values: Array = given[:, order].astype(np.float64)
    observed = ~np.isnan(values)
    if np.isinf(values).any():
        row, column = np.argwhere(np.isinf(values))[0]
        raise ValueError(
            f"X must be finite (NaN marks a missing entry); sample {shown(sample_names[row])} is infinite at feature "
            f"{shown(labels.feature_names[column])}; replace it by NaN or by a number"
        )
    empty = ~observed.any(axis=1)
    if empty.any():
        raise ValueError(
            f"every sample must have at least one observed entry; sample {shown(sample_names[int(np.argmax(empty))])} "
            f"has none ({int(empty.sum())} such in all); drop them"
        )
    known = 0.0 if own is None else labels.known(own)
    Y = (values - labels.offset) / labels.scale - known
    Y[~observed] = 0.0
    directions = labels.directions(len(Y), own)
    return Samples(Y, observed, values, order, sample_names, feature_names, known, directions)


def new_covariates(covariates: Any, sample_names: NDArray[Any], labels: Labels) -> Array:
    """(n, c) the covariates of new samples."""
    wanted = labels.covariate_names
    if covariates is None:
        raise ValueError(
            f"the fit had covariates ({_listed([str(name) for name in wanted]).rpartition(' ')[0]}), and new samples "
            "need theirs; got none; pass covariates=..."
        )
    values, _ = read_covariates(covariates, sample_names, wanted)
    if values.shape[1] != len(wanted):
        raise ValueError(
            f"covariates must be those of the fit, {len(wanted)} columns; got {values.shape[1]}; select them"
        )
    return np.asarray(values)


def training_matrix(X: Any, labels: Labels, what: str, remedy: str) -> Array:
    """(n_samples, n_features) X in the fit's order: by name where both have names, else by position."""
    given, sample_names, feature_names, _ = read_matrix(X)
    shape = (len(labels.sample_names), len(labels.feature_names))
    if given.shape != shape:
        raise ValueError(f"{what} must have the shape of the training data, {shape}; got {given.shape}; {remedy}")
    columns = matched(feature_names, shape[1], labels.feature_names)
    rows = matched(sample_names, shape[0], labels.sample_names, "sample", "index")
    return np.asarray(given[np.ix_(rows, columns)], dtype=np.float64)


def variance_by_sample(p: VIPosterior | MCMCPosterior, X: Any) -> Array:
    """(n_samples,) one minus residual over total sum of squares of each sample's observed entries, as they were fitted.

    NaN for a sample without variation around the features' means.
    """
    if X is None:
        raise ValueError('by="sample" needs the data of the fit, which a result does not keep; got none; pass X=...')
    data = training_matrix(X, p.labels, "X", "pass the data of the fit")
    fitted = (data - p.labels.offset) / p.labels.scale
    signal = p.signal() + (p.labels.known() if len(p.covariate_names) else 0.0)
    residual, total = (np.nansum(values**2, axis=1) for values in (fitted - signal, fitted))
    return np.where(total > 0, 1.0 - residual / np.where(total > 0, total, 1.0), np.nan)


def matched(
    given: NDArray[Any], size: int, wanted: NDArray[Any], what: str = "feature", axis: str = "columns"
) -> NDArray[np.intp]:
    """(n_features,) where in X each feature of the fit is; by name where both have names, else by position.

    what, axis: of samples, "sample" and "index".
    """
    named = given.dtype.kind not in "iu" and wanted.dtype.kind not in "iu"
    if not named:
        if size != len(wanted):
            raise ValueError(
                f"X must have the {len(wanted)} {what}s of the fit; got {size}; pass the same {what}s in the same "
                "order, or frames with names"
            )
        return np.arange(size)
    place = {str(name): at for at, name in enumerate(given)}
    absent = [str(name) for name in wanted if str(name) not in place]
    if absent:
        raise ValueError(
            f"X must have every {what} of the fit; {_listed(absent)} lacking; if they were not measured, say so: "
            f"X.reindex({axis}=p.{what}_names) marks them as missing"
        )
    known = {str(name) for name in wanted}
    other = [name for name in place if name not in known]
    if other:
        select = "X[p.feature_names]" if what == "feature" else "X.loc[p.sample_names]"
        raise ValueError(f"X must have the {what}s of the fit only; {_listed(other)} unknown to it; select: {select}")
    return np.array([place[str(name)] for name in wanted], dtype=np.intp)


def _listed(names: list[str]) -> str:
    """The first few names, and how many more there are."""
    text = ", ".join(repr(shown(name)) for name in names[:NAMED])
    more = len(names) - NAMED
    return f"{text} and {more} more are" if more > 0 else f"{text} {'is' if len(names) == 1 else 'are'}"
