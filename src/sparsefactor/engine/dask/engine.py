"""The engine of the client: every verb is a task for each block of rows; rows are futures."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from functools import partial, wraps
from typing import Any

import numpy as np

from ...arrays import NUMPY
from ...computed import computed
from ...data import Data
from ...data.matrix import OF_THE_WHOLE
from ...executors import constant, gathered, submit
from ...kernels.contract import (
    Array,
    ColumnNoise,
    GibbsColumns,
    GibbsRows,
    Message,
    PrecisionNoise,
    RotationNoise,
    ShearNoise,
    VIRows,
)
from ...kernels.correlation import inverse_of
from ...kernels.cpu.profiles import CompiledShears
from ...kernels.rows import RowVerbs
from ...kernels.starts import StartMatrix
from ...kernels.verbs import KINDS
from ...model import Prior
from ..cpu_moves import activations_given, precision_state, turns_of
from ..own_parts import OwnParts, draw_here, is_small
from ..pinned import Pinned, extended, free_phi
from . import blocks
from .blocks import Setting, engine_on
from .data import ClusterData, sent
from .futures import Cluster, Cut, Parts, part_of

# Arguments of the host's that have a row for each feature: by verb, their places, and the axis of the rows.
OF_THE_HOST = {
    "vi_place": ((0, 1), 0), "gibbs_place": ((0,), 0), "gibbs_tally_return": ((0,), 1), "start_turn": ((0,), 0),
    "start_join": ((0, 1), 0), "start_products": ((0,), 0), "start_bend": ((0,), 0), "vi_sort": ((1,), 0),
}  # fmt: skip
# What is asked of the engine on no rows.
OF_NO_ROW = ("scope", "row_noise", "vi_activations", "gibbs_activations", "vi_shortcut", "gibbs_shortcut")


class WholeRows(RowVerbs):
    """Verbs on the rows of all blocks, fetched, that read no data."""

    shears = CompiledShears

    def __init__(self, data: Data, prior: Prior) -> None:
        self.data, self.prior = data, prior


class DaskEngine:
    """`Engine` whose rows are on the workers of a cluster; results are those of the CPU engine, to the bit.

    Its name is that engine's, too: the draws of a run can continue there.
    """

    name, one_caller, n_threads = "cpu", False, 1

    def __init__(self, data: Data, prior: Prior, client: Any = None, *, _cluster: Cluster | None = None) -> None:
        self.data, self.prior = data, prior.in_units_of(data)
        self.cluster = _cluster or (data.cluster if isinstance(data, ClusterData) else sent(client, data))
        self.client = self.cluster.client
        whole = None if data.design is None else extended(self.prior, len(data.design.basis))
        own, known = self.prior, {name: getattr(data, name) for name in OF_THE_WHOLE}
        name = uuid.uuid4().hex
        settings = [
            Setting(name, own.part(rows), whole and whole.part(rows), data.design, known)
            for rows in self.cluster.bounds
        ]
        self.settings = [constant(self.client, each, "prior") for each in settings]
        nobodys = first_rows(own, data.n_features), whole and first_rows(whole, data.n_features)
        local = partial(engine_on, no_rows(data), *nobodys, None)  # which asks for constants of all rows
        self.local: Any = self._call(blocks.noise_constants, (), "v", local)[0]
        self.whole = WholeRows(data, self.prior)

    def __getattr__(self, name: str) -> Any:
        """A verb; or what no row has a part in, of the engine on no rows."""
        if name in KINDS and "local" in vars(self):
            return wraps(getattr(self.local, name))(partial(self._verb, name))
        if name in OF_NO_ROW:
            return getattr(self.local, name)
        raise AttributeError(name)

    def _verb(self, name: str, *args: Any) -> Any:
        places, axis = OF_THE_HOST.get(name, ((), 0))
        G = self.data.n_features
        dealt = [
            Cut(arg, axis) if place in places and isinstance(arg, np.ndarray) else by_row(arg, G)
            for place, arg in enumerate(args)
        ]
        found = self._call(name, dealt, KINDS[name], getattr(self.local, name))
        if KINDS[name] == "g":
            return joined(found[0], 1 if name == "gibbs_tally_fetch" else 0)
        return found if len(found) > 1 else found[0]

    def _call(self, function: Any, args: Sequence[Any], kinds: str, local: Any) -> tuple[Any, ...]:
        return self.cluster.call(self.settings, function, args, kinds, local)

    # ---- verbs that are not made by block --------------------------------------------------------------------------

    def start_matrix(self) -> Any:
        """The data as starts see them, on the workers."""
        (matrix,) = self._call("start_matrix", (), "r", self.local.start_matrix)
        return RemoteMatrix(self, matrix)

    def vi_shears(self, rows: Any, message: Message) -> Any:
        """On rows that are fetched: a search asks for many profiles, and none of them reads the data."""
        return self.whole.vi_shears(self.vi_fetch(rows), message)

    def vi_sortings(self, rows: Any, M: int, rng: np.random.Generator) -> list[Array]:
        """On inclusions that are fetched."""
        return self.whole.vi_sortings(self.vi_fetch(rows), M, rng)

    def gibbs_tally_add(self, tally: Any, rows: Any, scale: Array, F: Array) -> Any:
        """The sum with a draw more, in memory of its own: a task must not change what it is given."""
        local = partial(blocks.add_to_copy, self.local)
        return self._call(blocks.add_to_copy, (tally, rows, scale, F), "r", local)[0]

    # ---- the sampler's moves ----------------------------------------------------------------------------------------

    def gibbs_shear(self, rows: Any, columns: GibbsColumns, noise: ShearNoise) -> tuple[Any, Array, Array]:
        own, K = self.local.with_still(noise) if isinstance(self.local, Pinned) else noise, self.prior.K
        after, (F, phi) = self._move("shear", rows, columns, own)
        return after, np.ascontiguousarray(F[:K]), free_phi(phi, K)

    def gibbs_rotate(self, rows: Any, columns: GibbsColumns, noise: RotationNoise) -> tuple[Any, Array, Array, Array]:
        after, (F, alpha, phi) = self._move("rotate", rows, columns, noise)
        K = self.prior.K
        return after, np.ascontiguousarray(F[:K]), alpha[:K].reshape(columns.alpha.shape), free_phi(phi, K)

    def gibbs_columns(self, rows: Any, columns: GibbsColumns, noise: ColumnNoise) -> tuple[Any, Array, Array]:
        K, learnt = self.prior.K, self.prior.learns_inclusion
        logit = self.local.certain(columns.logit) if isinstance(self.local, Pinned) else columns.logit
        after, (alpha, logit) = self._move("draw_columns", rows, columns, noise, learnt, logit)
        return after, alpha[:K].reshape(columns.alpha.shape), np.ascontiguousarray(logit[:, :K])

    def _move(self, name: str, rows: Parts, columns: GibbsColumns, *args: Any) -> tuple[Parts, Any]:
        """Each block opens a move, one worker decides on the rows of all, and each block takes its own."""
        cluster, local = self.cluster, partial(blocks.open_move, self.local)
        (opened,) = self._call(blocks.open_move, (rows, by_row(columns, self.data.n_features)), "r", local)
        decided = submit(self.client, blocks.decide, name, args, *opened.futures, name=name)
        values = submit(self.client, blocks.values_of, decided, name="values")
        numbers = range(len(cluster.bounds))
        own = cluster.map(blocks.rows_of, [decided] * len(numbers), numbers, name="part")
        futures = cluster.map(blocks.close_move, cluster.blocks, self.settings, opened.futures, own, name="rows")
        after = cluster.saved(Parts(futures, rows.local, opened.tasks + 1, opened.since))
        return after, gathered(self.client, [values])[0]

    @property
    def moves(self) -> tuple[str, ...]:
        """Those of the engine on the workers, and what is made here of small data."""
        moves: tuple[str, ...] = self.local.moves
        return moves if "noise" in moves or not is_small(self.data, self.prior) else (*moves, "noise")

    @computed
    def own_parts(self) -> Any:
        """Of small data with missing entries or a design, made here."""
        return draw_here(self, OwnParts(self.data, self.prior))

    def gibbs_precisions(self, rows: Any, columns: GibbsColumns, noise: PrecisionNoise) -> tuple[Any, Array]:
        """Of complete data: rows follow each other from block to block."""
        if not self.data.is_complete or self.data.design is not None:
            drawn: tuple[Any, Array] = self.own_parts(rows, columns, noise)
            return drawn
        cut = by_row(columns, self.data.n_features)
        opened, C, M = self._call("open_precisions", (rows, cut), "rvv", self.local.open_precisions)
        prior = inverse_of(columns.phi, len(M), NUMPY)
        state: Any = precision_state(C, M, prior)
        futures, done = list(opened.futures), 0
        for begin, stop in turns_of(noise, self.data.n_features):
            for number, held in enumerate(self.cluster.bounds):
                first, last = max(begin, held.start), min(stop, held.stop)
                if first >= last:
                    continue
                args = self.cluster.blocks[number], self.settings[number], futures[number], state
                turn, own = (first, last, done), part_of(cut, held)
                state = futures[number] = submit(
                    self.client, blocks.draw_precisions, *args, turn, own, noise, name="precisions"
                )
                done += last - first
        if not isinstance(state, tuple):
            state = gathered(self.client, [submit(self.client, blocks.state_of, state, name="values")])[0]
        after = self.cluster.saved(Parts(futures, rows.local, opened.tasks + 1, opened.since))
        return after, activations_given(state, prior, noise.normal)

    def with_prior(self, prior: Prior) -> DaskEngine:
        """The same engine and data under another prior."""
        return DaskEngine(self.data, prior, _cluster=self.cluster)

    def with_threads(self, n_threads: int) -> DaskEngine:
        """The same engine: its threads are the workers'."""
        return self


class RemoteMatrix:
    """The data as starts see them (kernels/starts.py), on the workers."""

    def __init__(self, engine: DaskEngine, matrix: Parts) -> None:
        self.engine, self.matrix, self.data = engine, matrix, engine.data
        self.scale: float = matrix.local.scale

    def _ask(self, name: str, kinds: str, *args: Any) -> tuple[Any, ...]:
        local = getattr(self.matrix.local, name)
        return self.engine.cluster.call(self.engine.settings, name, args, kinds, local, self.matrix)

    def gram(self) -> Array:
        return np.asarray(self._ask("gram", "v")[0])

    def columns(self, samples: slice) -> Array:
        return np.concatenate(self._ask("columns", "g", samples)[0])

    def feature_gram(self) -> Array:
        """(G, G) Y Y', of few features, here."""
        return StartMatrix.feature_gram(self)  # type: ignore[arg-type]

    def times(self, V: Array) -> Any:
        return self._ask("times", "r", V)[0]

    def back(self, L: Any) -> Array:
        return np.asarray(self._ask("back", "v", loadings(L))[0])

    def power(self, V: Array) -> Array:
        return np.asarray(self._ask("power", "v", V)[0])

    def filled(self, L: Any, V: Array) -> tuple[RemoteMatrix, float, float]:
        matrix, change, size = self._ask("filled", "rvv", loadings(L), V)
        return RemoteMatrix(self.engine, matrix), change, size


def loadings(L: Any) -> Any:
    """Of a start: the workers' own, or the host's, of which each block gets its rows."""
    return Cut(L) if isinstance(L, np.ndarray) else L


def by_row(arg: Any, G: int) -> Any:
    """An argument, of whose arrays each block gets its own rows where they have one for each feature."""
    if isinstance(arg, VIRows | GibbsRows):  # the host's
        kind: Any = type(arg)
        return kind(*(Cut(array) if len(array) else array for array in arg))
    if isinstance(arg, Message | GibbsColumns) and len(arg.logit) == G > 1:
        return arg._replace(logit=Cut(arg.logit))  # type: ignore[arg-type]
    return arg


def joined(parts: list[Any], axis: int) -> Any:
    """What the blocks have of an array, or of a named tuple of them; what is empty in them is as by default."""
    kind: Any = type(parts[0])
    if not issubclass(kind, tuple):
        return np.concatenate(parts, axis=axis)
    each = zip(kind._fields, zip(*parts, strict=True), strict=True)
    empty = kind._field_defaults
    return kind(*(np.concatenate(own) if len(own[0]) else empty.get(name, own[0]) for name, own in each))


def first_rows(prior: Prior, G: int) -> Prior:
    """The prior of one who has no rows: one row of what is given by row."""
    own = prior.part(slice(0, 1))
    return replace(own, noise_rate=own.noise_rate[:0]) if prior.noise == "feature" and np.ndim(own.noise_rate) else own


def no_rows(data: Data) -> Data:
    """None of the rows, with what is known of all."""
    nothing = Data(
        Y=np.zeros((0, data.n_samples), data.Y.dtype),
        observed=None if data.observed is None else np.zeros((0, data.n_samples), bool),
        offset=np.zeros(0),
        feature_names=data.feature_names[:0],
        sample_names=data.sample_names,
        unit=data.unit,
        design=data.design,
        n_rows=data.n_features,
    )
    return nothing.knowing(data)
