"""Ways out of a local optimum, for the thorough search: each makes a state to climb from (math.md, 3.18).

Optima on real data mostly span the same space of activations and differ in the axes they choose there. A rotation
changes nothing of the fit, so that the climb from it is short. A short run of Gibbs sampling goes where the posterior
has its mass: it includes and excludes loadings, rotates factors, and fills or empties them.
"""

from __future__ import annotations

import numpy as np

from ..gibbs.moves import moves_for
from ..gibbs.sweep import Gibbs
from ..kernels.columns import second_moment
from ..kernels.noise import row_stream, stream_key
from .cavi import CAVI, VIState
from .empty import is_empty_factor
from .shear import sheared

MOST_ROTATED = 4  # factors that are rotated together; other numbers were not compared
SWEEPS = 150  # of Gibbs sampling: shorter runs end where they began
MOVES = ("scale", "rotation", "shear")
EVERY = 3  # sweeps between the sampler's moves, which take most of the time
ROTATIONS = 2  # proposals by a rotation for each by Gibbs sampling


def propose(cavi: CAVI, state: VIState, seed: int, number: int) -> VIState:
    """Proposal `number` from a state: a rotation, or every third time a run of Gibbs sampling."""
    rotated = None
    if number % (ROTATIONS + 1) < ROTATIONS:
        rotated = rotate(cavi, state, np.random.default_rng([seed, number, 12]))
    return run_gibbs(cavi, state, seed, number) if rotated is None else rotated


def rotate(cavi: CAVI, state: VIState, rng: np.random.Generator) -> VIState | None:
    """The state after a uniformly random rotation of two to four non-empty factors; None where there are not two."""
    used = np.flatnonzero(~is_empty_factor(cavi, state))
    if len(used) < 2:
        return None
    own = rng.choice(used, int(rng.integers(2, min(MOST_ROTATED, len(used)) + 1)), replace=False)
    length = np.sqrt(np.asarray(second_moment(state.columns, cavi.fixed))[own])
    Q, R = np.linalg.qr(rng.standard_normal((len(own), len(own))))
    E = np.zeros((cavi.prior.K, cavi.prior.K))
    E[np.ix_(own, own)] = length[:, None] * (Q * np.sign(np.diag(R))) / length - np.eye(len(own))
    return sheared(cavi, state, E)


def run_gibbs(cavi: CAVI, state: VIState, seed: int, number: int) -> VIState:
    """The state at the last draw of a short run of Gibbs sampling from this one."""
    engine = cavi.engine
    moves = moves_for(engine, [name for name in MOVES if name in engine.moves])
    for move in moves:
        move.every = EVERY
    gibbs = Gibbs(cavi.data, cavi.prior, engine, moves, any_normals=True)
    rows = engine.vi_draw(state.rows, row_stream(np.random.default_rng([seed, number, 11])))
    draw = gibbs.run(gibbs.begin(rows, np.array(state.columns.f_mean)), stream_key(seed, number), SWEEPS)
    return cavi.begin(engine.vi_at_draw(draw.rows, draw.scale), draw.F, known=True)
