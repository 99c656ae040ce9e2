"""Recombination: what two optima have found, in one state (docs/math.md, 3.18).

Optima of different climbs mostly share their factors but for a few. Those that only one of them has are put beside all
of the other's, and that state climbs; which ones are given up is decided afterwards, when it is known what each is
worth beside the rest.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..relabel import alike
from .cavi import CAVI, VIState
from .empty import holds_nothing
from .factors import taken
from .hop import Hops

SAME = 0.97  # factors are the same when their activations' cosine is at least this, up to sign
MOST = 4  # factors that come in at once, the strongest


def crossed(hops: Hops, one: VIState, other: VIState) -> tuple[CAVI, VIState] | None:
    """`one` and beside it the factors that only `other` has, after one row pass; None where it has none."""
    cavi = hops.whole
    mine, theirs = (np.flatnonzero(~holds_nothing(cavi, state)) for state in (one, other))
    cosine, a, b = alike(one.columns.f_mean[mine].T, other.columns.f_mean[theirs].T)
    new = np.setdiff1d(theirs, theirs[b[cosine[a, b] >= SAME]])
    if not hops.exchangeable or not len(new):
        return None
    new = new[np.argsort(-cavi.strength(other)[new], kind="stable")][:MOST]
    wide = hops.kit(hops.size(len(mine) + len(new)))[0]
    rows, columns = hops.resized(cavi, wide, one)
    places = np.arange(len(mine), len(mine) + len(new))
    return wide, with_factors(wide, one._replace(rows=rows, columns=columns), places, other, new)


def with_factors(
    cavi: CAVI, one: VIState, places: NDArray[np.intp], other: VIState, factors: NDArray[np.intp]
) -> VIState:
    """`one` with factors of `other` in some places, and one row pass."""
    rows, columns = one.rows, one.columns
    rows = cavi.engine.vi_put(rows, places, other.rows, factors)
    _, their_columns = taken(cavi.engine, other.rows, other.columns, factors)
    f_mean, f_var = np.array(columns.f_mean), np.array(columns.f_var)
    f_mean[places] = their_columns.f_mean
    if f_var.ndim == 3:
        f_var[:, places], f_var[:, :, places] = 0.0, 0.0
        f_var[:, places, places] = np.einsum("jkk->jk", their_columns.f_var)
    else:
        f_var[places] = their_columns.f_var
    changed = {"f_mean": f_mean, "f_var": f_var}
    for name in ("alpha_shape", "alpha_rate", "pi_a", "pi_b", "own"):
        values = getattr(columns, name)
        if len(values):
            changed[name] = np.array(values)
            changed[name][places] = getattr(their_columns, name)
    return cavi.finish(rows, columns._replace(**changed), np.ones(cavi.prior.K))
