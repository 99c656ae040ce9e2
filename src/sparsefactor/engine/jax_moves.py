"""The sampler's moves on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..computed import computed
from ..data import Data
from ..kernels.contract import (
    NONE,
    NOWHERE,
    Array,
    ColumnNoise,
    GibbsColumns,
    GibbsRows,
    PrecisionNoise,
    RotationNoise,
    ShearNoise,
)
from ..kernels.jax.column import Slab, columns_drawn
from ..kernels.jax.library import with_64_bits
from ..kernels.jax.moves import data_products, rotate, shear
from ..kernels.jax.problem import Kind, Problem
from ..model import Beta, Prior
from .jax_turns import in_turn
from .own_parts import OwnParts, draw_here, is_small


class JaxMoves:
    """For one data set and prior; of the columns, what has the size of the samples stays on the device."""

    data: Data
    prior: Prior
    problem: Problem
    kind: Kind

    asked: Callable[..., Any]

    def products(self, columns: GibbsColumns) -> Any:
        """All that a move asks of the data."""
        return self.asked(data_products, GibbsColumns(columns.F, NONE, NONE, columns.weight, NONE), join=1)

    @with_64_bits
    def gibbs_shear(self, rows: GibbsRows, columns: GibbsColumns, noise: ShearNoise) -> tuple[GibbsRows, Array, Array]:
        """New rows, F (K, N), on the device, and phi after shears (2.11)."""
        args = self.products(columns), free(rows), columns, noise, self.hyper()
        Z, L, F, phi = shear(self.problem, *args, kind=self.kind)
        return rows._replace(Z=Z, L=L), F, np.array(phi)

    @with_64_bits
    def gibbs_rotate(
        self, rows: GibbsRows, columns: GibbsColumns, noise: RotationNoise
    ) -> tuple[GibbsRows, Array, Array, Array]:
        """New rows, F (K, N), on the device, alpha (K, V?) and phi after rotations (2.10)."""
        args = self.products(columns), free(rows), columns, noise, self.hyper()
        Z, L, F, alpha, phi = rotate(self.problem, *args, kind=self.kind)
        return rows._replace(Z=Z, L=L), F, np.array(alpha), np.array(phi)

    def hyper(self) -> tuple[Array, Array]:
        """Shape and rate of the prior on slab precisions."""
        return np.asarray(self.prior.loading_shape, np.float64), np.asarray(self.prior.loading_rate, np.float64)

    @with_64_bits
    def gibbs_columns(
        self, rows: GibbsRows, columns: GibbsColumns, noise: ColumnNoise
    ) -> tuple[GibbsRows, Array, Array]:
        """New rows, alpha (K, V?) and logit (1, V or G, K), which changes where rates are learnt (2.15)."""
        prior, V = self.prior, self.kind.n_groups
        learnt = prior.learns_inclusion and len(columns.logit) == V and not len(rows.member)
        beta = prior.inclusion if isinstance(prior.inclusion, Beta) else Beta(1, 1)
        rate = np.broadcast_to(np.asarray(prior.loading_rate, dtype=np.float64), V)
        slab = Slab(np.float64(prior.loading_shape), rate, np.float64(beta.a), np.float64(beta.b))
        args = self.products(columns), free(rows), columns, noise, slab
        Z, L, alpha, logit = columns_drawn(self.problem, *args, kind=self.kind, learnt=learnt)
        new = np.array(alpha).reshape(columns.alpha.shape)
        return rows._replace(Z=Z, L=L), new, np.array(logit) if learnt else columns.logit.copy()

    @with_64_bits
    def gibbs_precisions(
        self, rows: GibbsRows, columns: GibbsColumns, noise: PrecisionNoise
    ) -> tuple[GibbsRows, Array]:
        """New rows and F (K, N) (2.16, 2.17).

        One row after the other is no work for a device: the rows whose turn it is, which are few, come to the host,
        and go back. Sums over all rows, before and after, are made where they are. Where entries are missing, all
        rows come to the host, for data are small then.
        """
        if not self.data.is_complete:
            return self.own_parts(rows, columns, noise)
        Z, L, tau, F = in_turn(self, free(rows), columns, noise)
        return rows._replace(Z=Z, L=L, tau=tau), F

    @property
    def has_own_parts(self) -> bool:
        """Whether it draws what belongs to one feature where entries are missing (2.17c)."""
        return is_small(self.data, self.prior)

    @computed
    def own_parts(self) -> Any:
        return self.precisions_of(self.data, self.prior)

    def precisions_of(self, data: Data, prior: Prior) -> Any:
        """`gibbs_precisions` of these data, which may be ours with a design; None where they are too large."""
        return draw_here(self, OwnParts(data, prior)) if is_small(data, prior) else None


def free(rows: GibbsRows) -> GibbsRows:
    """Rows without what belongs to a design; modules as the kernels look for them."""
    return GibbsRows(rows.Z, rows.L, rows.tau, member=rows.member if len(rows.member) else NOWHERE)
