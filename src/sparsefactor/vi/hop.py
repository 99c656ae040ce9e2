"""Leave a local optimum by a short run of Gibbs sampling, and climb again from where it ends (docs/math.md, 3.18).

Where an optimum is one of many, as on real data, the others lie where the posterior has its mass too, and the sampler
walks there by itself: it takes loadings in and out, turns factors and shears them. A climb from one of its draws ends
in the optimum of that neighbourhood. Factors that hold nothing only slow this down, so all but a few are left out on
the way. Where every factor holds something, a few more are put in: a new factor need not wait for an old one to go,
and which ones are given up is decided afterwards, when it is known what each is worth.
"""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np

from ..gibbs.moves import moves_for
from ..gibbs.sweep import Gibbs
from ..kernels.contract import VIColumns, VIRows
from ..kernels.noise import row_stream, stream_key
from .cavi import CAVI, VIState
from .empty import cleared, holds_nothing
from .factors import taken
from .filled import Filled, filled_runs

SWEEPS = 150  # of a run: shorter ones end where they began, longer ones do not find more in the same time
USED = ("scale", "rotation", "shear")
EVERY = 3  # sweeps between the sampler's moves
SPARE = 2  # empty factors that a run may fill, also beyond the number there are to be


class Hops:
    """Excursions by Gibbs sampling from states of one `CAVI`."""

    def __init__(self, cavi: CAVI, seed: int) -> None:
        self.whole, self.seed = cavi, seed
        self.lock = threading.Lock()  # of what several threads may ask for at once
        self.kits: dict[int, tuple[CAVI, Gibbs]] = {}
        self.fillers: dict[int, Filled | None] = {}
        self.exchangeable = cavi.n_kinds == 1 and not (
            not cavi.prior.learns_inclusion and len(cavi.prior.inclusion_matrix()) > 1
        )

    def from_state(self, state: VIState, number: tuple[int, ...] = (0,), sweeps: int = SWEEPS) -> tuple[CAVI, VIState]:
        """Where a run of Gibbs sampling from this state leads to, perhaps with fewer or more factors.

        number: of the run, which its randomness goes by.
        """
        cavi, gibbs = self.kit(self.wanted(state))
        rows, columns = self.resized(self.whole, cavi, state)
        filled = self.filled(cavi, gibbs)
        if filled is not None:
            return cavi, filled.from_state(rows, columns, number, sweeps, self.seed)
        rng = np.random.default_rng([self.seed, *number, 11])
        F = np.array(columns.f_mean)
        F = F if cavi.fold is None else cavi.fold.to_draw(F, gibbs.data.n_samples)
        draw = gibbs.begin(cavi.engine.vi_draw(rows, row_stream(rng)), F)
        draw = gibbs.run(draw, stream_key(self.seed, *number), sweeps)
        return cavi, cavi.begin(cavi.engine.vi_at_draw(draw.rows, draw.scale), draw.F, known=True)

    def filled(self, cavi: CAVI, gibbs: Gibbs) -> Filled | None:
        """Runs of filled data, where these can be made."""
        with self.lock:
            if cavi.prior.K not in self.fillers:
                self.fillers[cavi.prior.K] = filled_runs(cavi, gibbs.moves)
            return self.fillers[cavi.prior.K]

    def whole_of(self, cavi: CAVI, state: VIState) -> VIState:
        """The state with as many factors as there are in all: strongest first, the ones it lacks empty."""
        if cavi is self.whole:
            return state
        rows, columns = self.resized(cavi, self.whole, state)
        return self.whole.finish(rows, columns, np.ones(self.whole.prior.K))

    def narrowed(self, state: VIState) -> tuple[CAVI, VIState]:
        """The state without most of its empty factors, where it has more than a run needs."""
        K = self.wanted(state)
        if K >= self.whole.prior.K:
            return self.whole, state
        cavi = self.kit(K)[0]
        return cavi, cavi.finish(*self.resized(self.whole, cavi, state), np.ones(K))

    def wanted(self, state: VIState) -> int:
        """How many factors a run needs."""
        K = self.whole.prior.K
        used = K - int(holds_nothing(self.whole, state).sum())
        return self.size(used + SPARE) if self.exchangeable else K

    def size(self, n: int) -> int:
        """With how many factors to run for n: where each number is compiled for, that of the race, or little more."""
        K = self.whole.prior.K
        return K + SPARE * max(1, -(-(n - K) // SPARE)) if self.whole.engine.compiles else n

    def kit(self, K: int) -> tuple[CAVI, Gibbs]:
        """Both methods' sweeps for K factors."""
        with self.lock:
            if K not in self.kits:
                self.kits[K] = self._kit(K)
            return self.kits[K]

    def _kit(self, K: int) -> tuple[CAVI, Gibbs]:
        cavi, data = self.whole, self.whole.data
        if cavi.prior.K != K:
            prior = replace(cavi.prior, factor_names=None).take(np.minimum(np.arange(K), cavi.prior.K - 1))
            cavi = CAVI(data, prior, cavi.engine.with_prior(prior), joint=cavi.joint, fold=cavi.fold)
        engine = cavi.engine if cavi.fold is None else cavi.fold.engine_of_draws(cavi)
        moves = moves_for(engine, [name for name in USED if name in engine.moves])
        for move in moves:
            move.every = EVERY  # a run is judged by where it ends, and moves take most of its time
        return cavi, Gibbs(engine.data, cavi.prior, engine, moves, any_normals=True)

    def resized(self, old: CAVI, new: CAVI, state: VIState) -> tuple[VIRows, VIColumns]:
        """q of the factors that hold something, strongest first, and of as many empty ones as `new` has room for."""
        rows, columns = state.rows, state.columns
        if old is new:
            return rows, columns
        strength = old.strength(state)
        bare = holds_nothing(old, state)
        order = np.argsort(np.where(bare, np.inf, -strength), kind="stable")[: new.prior.K]
        extra = new.prior.K - len(order)
        rows, columns = taken(old.engine, rows, columns, np.append(order, np.zeros(extra, dtype=np.intp)))
        for k in range(len(order), new.prior.K):
            rows, columns = cleared(new, rows, columns, k)
        return rows, columns
