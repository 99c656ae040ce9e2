"""The sampler's moves on the device."""

from __future__ import annotations

import numpy as np

from ..data import Data
from ..kernels.contract import (
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
from ..kernels.jax.moves import rotate, shear
from ..kernels.jax.problem import Kind, Problem
from ..model import Beta, Prior


class JaxMoves:
    """For one data set and prior; columns come from the host and go back there."""

    data: Data
    prior: Prior
    problem: Problem
    kind: Kind

    @property
    def moves(self) -> tuple[str, ...]:
        """All but "noise", whose rows take turns: there is nothing to do side by side."""
        return ("scale", "rotation", "shear", "column")

    @with_64_bits
    def gibbs_shear(self, rows: GibbsRows, columns: GibbsColumns, noise: ShearNoise) -> tuple[GibbsRows, Array]:
        """New rows and F (K, N) after shears (2.11)."""
        Z, L, F = shear(self.problem, free(rows), columns, noise, kind=self.kind)
        return rows._replace(Z=Z, L=L), np.array(F)

    @with_64_bits
    def gibbs_rotate(
        self, rows: GibbsRows, columns: GibbsColumns, noise: RotationNoise
    ) -> tuple[GibbsRows, Array, Array]:
        """New rows, F (K, N) and alpha (K, V?) after rotations (2.10)."""
        Z, L, F, alpha = rotate(self.problem, free(rows), columns, noise, kind=self.kind)
        return rows._replace(Z=Z, L=L), np.array(F), np.array(alpha)

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
        Z, L, alpha, logit = columns_drawn(
            self.problem, free(rows), columns, noise, slab, kind=self.kind, learnt=learnt
        )
        new = np.array(alpha).reshape(columns.alpha.shape)
        return rows._replace(Z=Z, L=L), new, np.array(logit) if learnt else columns.logit.copy()

    def gibbs_precisions(
        self, rows: GibbsRows, columns: GibbsColumns, noise: PrecisionNoise
    ) -> tuple[GibbsRows, Array]:
        """Refused: see moves."""
        raise NotImplementedError("one row after the other is no work for a device: see moves")


def free(rows: GibbsRows) -> GibbsRows:
    """Rows without what belongs to a design; modules as the kernels look for them."""
    return GibbsRows(rows.Z, rows.L, rows.tau, member=rows.member if len(rows.member) else NOWHERE)
