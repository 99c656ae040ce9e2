"""Recombination: what two optima have found, in one state (docs/math.md, 3.18).

Optima of different climbs mostly share their factors but for one or two. The factors of one that the other lacks are
put into the other's empty places, or, where there are none, in the place of what only it has; then it climbs.
"""

from __future__ import annotations

import numpy as np

from ..relabel import alike
from .cavi import CAVI, VIState
from .empty import holds_nothing
from .factors import taken

SAME = 0.97  # factors are the same when their activations' cosine is at least this, up to sign


def crossed(cavi: CAVI, one: VIState, other: VIState, rng: np.random.Generator) -> VIState | None:
    """`one` with some of the factors that only `other` has, and one row pass; None where it has none."""
    mine, theirs = (np.flatnonzero(~holds_nothing(cavi, state)) for state in (one, other))
    cosine, a, b = alike(one.columns.f_mean[mine].T, other.columns.f_mean[theirs].T)
    paired = cosine[a, b] >= SAME
    new = rng.permutation(np.setdiff1d(theirs, theirs[b[paired]]))
    only_mine = rng.permutation(np.setdiff1d(mine, mine[a[paired]]))
    places = np.append(np.setdiff1d(np.arange(cavi.prior.K), mine), only_mine)
    count = min(len(new), len(places))
    if count == 0:
        return None
    count = int(rng.integers(1, count + 1))
    return with_factors(cavi, one, places[:count], other, new[:count])


def with_factors(cavi: CAVI, one: VIState, places: np.ndarray, other: VIState, factors: np.ndarray) -> VIState:
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
    for name in ("alpha_shape", "alpha_rate", "pi_a", "pi_b"):
        values = getattr(columns, name)
        if len(values):
            changed[name] = np.array(values)
            changed[name][places] = getattr(their_columns, name)
    return cavi.finish(rows, columns._replace(**changed), np.ones(cavi.prior.K))
