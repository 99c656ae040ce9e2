"""What belongs to one feature, drawn without the activations where entries are missing or there is a design
(math.md, 2.16 to 2.17c): between the states of chains and the arrays of its kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import NUMPY
from ..computed import computed
from ..data import Data
from ..data.patterns import Patterns, patterns_of
from ..kernels.contract import Array, GibbsColumns, GibbsRows, PrecisionNoise
from ..kernels.correlation import inverse_of
from ..kernels.cpu.own_parts import draw_parts
from ..kernels.cpu.own_slices import FIELDS
from ..model import Prior

# Entries times squares of K, up to which what every sample is told by the rows takes no longer than a sweep.
SMALL = 2**23


def is_small(data: Data, prior: Prior) -> bool:
    """Whether these are all rows, and so little that the move is made here, on one thread, wherever the rows are."""
    entries = data.n_features * data.n_samples
    return data.n_rows in (None, data.n_features) and prior.noise == "feature" and entries * prior.K**2 <= SMALL


class OwnParts:
    """Of one data set, with its design where it has one, and prior."""

    def __init__(self, data: Data, prior: Prior) -> None:
        self.data, self.prior = data.here().dense(), prior.in_units_of(data)
        self.spaces: list[tuple[Any, ...]] = []

    @computed
    def patterns(self) -> Patterns:
        return patterns_of(self.data)

    @computed
    def problem(self) -> tuple[Any, ...]:
        """As the kernel takes it."""
        data, prior = self.data, self.prior
        order, first, seen = self.patterns
        group = prior.group_index if prior.grouped else np.zeros(data.n_features, np.int64)
        rate = np.array(np.broadcast_to(prior.noise_rate, data.n_features), dtype=np.float64)
        Y = np.ascontiguousarray(data.Y[:, order], dtype=np.float64)
        return Y, seen, first, group, float(prior.noise_shape), rate

    @computed
    def basis(self) -> Array:
        """(d, N) given activations."""
        order, design = self.patterns.order, self.data.design
        return np.ascontiguousarray((np.zeros((0, len(order))) if design is None else design.basis)[:, order])

    def space(self, K: int) -> tuple[Any, ...]:
        G, N = self.data.Y.shape
        P = len(self.patterns.seen)
        return (
            np.empty((G, N)),
            np.empty((N, K)),
            np.empty((P, K, K)),
            np.empty((P, K, K)),
            np.empty((P, K)),
            np.empty(P),
            np.empty(P, np.int64),
            np.empty(N),
            np.empty(N),
            np.empty((FIELDS, P)),
        )

    def draw(self, rows: GibbsRows, columns: GibbsColumns, noise: PrecisionNoise) -> tuple[GibbsRows, Array]:
        """New rows, whose loadings on directions stay, and F (K, N)."""
        G, K = rows.L.shape
        logit = columns.logit
        if len(rows.member):
            logit = logit[rows.member]
        elif len(logit) not in (1, G):
            logit = logit[self.prior.group_index]
        Z, L, tau = rows.Z.copy(), rows.L * columns.scale, rows.tau.copy()
        base = np.ascontiguousarray(rows.base) if len(self.basis) else np.zeros((G, 0))
        order, F = self.patterns.order, np.empty(noise.normal.shape)
        try:
            space = self.spaces.pop()
        except IndexError:  # all are in use by other threads
            space = self.space(K)
        draw_parts(
            noise.start,
            noise.n_rows,
            self.problem,
            self.basis,
            (Z, L, tau),
            base,
            columns.alpha.reshape(K, -1),
            inverse_of(columns.phi, K, NUMPY),
            np.ascontiguousarray(logit),
            noise.stream,
            np.ascontiguousarray(noise.normal[:, order]),
            space,
            F,
        )
        self.spaces.append(space)
        drawn = np.empty_like(F)
        drawn[:, order] = F
        return rows._replace(Z=Z, L=L, tau=tau), drawn


def draw_here(engine: Any, parts: OwnParts) -> Any:
    """`gibbs_precisions` of an engine whose rows are elsewhere: they come here, and go back."""

    def drawn(rows: Any, columns: GibbsColumns, noise: PrecisionNoise) -> tuple[Any, Array]:
        new, F = parts.draw(engine.gibbs_fetch(rows), columns, noise)
        return engine.gibbs_return(new), F

    return drawn
