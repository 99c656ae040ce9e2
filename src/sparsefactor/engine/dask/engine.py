"""The engine at the client: every verb asked of all shards at once; rows are handles."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...computed import computed
from ...data import Data
from ...kernels.contract import Array, GibbsColumns, GibbsRows, Message, PrecisionNoise, Sums, VIColumns, VIRows
from ...kernels.verbs import KINDS
from ...model import Prior
from ..own_parts import OwnParts, draw_here, is_small
from ..pinned import extended
from .cluster import Cluster, Cut, Handle
from .jax_passes import NAME
from .loading import ClusterData, sent
from .shard import engine_on

# Arguments of the host's that have a row for each feature: by verb, their places, and the axis of the rows.
OF_THE_HOST = {
    "vi_place": ((0, 1), 0), "gibbs_place": ((0,), 0), "gibbs_tally_return": ((0,), 1), "start_turn": ((0,), 0),
    "start_join": ((0, 1), 0), "start_products": ((0,), 0), "start_bend": ((0,), 0), "vi_sort": ((1,), 0),
}  # fmt: skip


class DaskEngine:
    """`Engine` whose rows are on the workers of a cluster; results are those of the CPU engine, to the bit.

    Its name is that engine's, too: the draws of a run can go on there.
    """

    one_caller, n_threads = False, 1

    def __init__(
        self,
        data: Data,
        prior: Prior,
        client: Any = None,
        *,
        by_jax: bool = False,
        single: bool = False,
        _cluster: Cluster | None = None,
    ) -> None:
        """by_jax: workers make the passes of VI so (jax_passes.py), in single precision where that is asked for."""
        self.data, self.prior = data, prior.in_units_of(data)
        self.by_jax, self.single, self.name = by_jax, single, NAME if by_jax else "cpu"
        if _cluster is None:
            _cluster = data.cluster if isinstance(data, ClusterData) else sent(client, data)
        self.cluster = _cluster
        design = data.design
        whole = None if design is None else extended(self.prior, len(design.basis))
        G = data.n_features
        own = [(part(self.prior, rows), whole and part(whole, rows), by_jax, single) for rows in self.cluster.bounds]
        nothing = no_rows(data)
        nobodys = (first_rows(self.prior, G), whole and first_rows(whole, G))

        def build(*_: Any) -> Any:
            return engine_on(nothing, *nobodys, None, self.cluster.exchange, by_jax, None)

        (self.handle,) = self.cluster.call_each(None, "build", own, "r", build)
        self.local: Any = self.handle.local

    def __getattr__(self, name: str) -> Any:
        """A verb."""
        if name not in KINDS:
            raise AttributeError(name)
        from functools import wraps

        own = getattr(self.local, name)
        return wraps(own)(partial(self._verb, name))

    def _verb(self, name: str, *args: Any) -> Any:
        places, axis = OF_THE_HOST.get(name, ((), 0))
        G = self.data.n_features
        dealt = tuple(
            Cut(arg, axis) if place in places and isinstance(arg, np.ndarray) else by_row(arg, G)
            for place, arg in enumerate(args)
        )
        found = self.cluster.call(self.handle, name, dealt, KINDS[name], getattr(self.local, name))
        wrapped = tuple(self._wrapped(name, each) for each in found)
        return wrapped if len(wrapped) > 1 else wrapped[0]

    def _wrapped(self, name: str, found: Any) -> Any:
        if KINDS[name] == "g":
            return joined(found, 1 if name == "gibbs_tally_fetch" else 0)
        if name == "start_matrix":
            return RemoteMatrix(self.cluster, found)
        return RemoteShears(self.cluster, found) if name == "vi_shears" else found

    # ---- what no row has a part in ------------------------------------------------------------------------------

    @property
    def moves(self) -> tuple[str, ...]:
        """Those of the engine on the workers, and what is made here of small data."""
        moves: tuple[str, ...] = self.local.moves
        return moves if "noise" in moves or not is_small(self.data, self.prior) else (*moves, "noise")

    @computed
    def own_parts(self) -> Any:
        """Of data with holes or a design."""
        return draw_here(self, OwnParts(self.data, self.prior))

    def gibbs_precisions(self, rows: Any, columns: GibbsColumns, noise: PrecisionNoise) -> tuple[Any, Array]:
        """As the workers draw them of complete data, or all here, where each row needs all that others tell."""
        plain = self.data.is_complete and self.data.design is None
        drawn: tuple[Any, Array] = (partial(self._verb, "gibbs_precisions") if plain else self.own_parts)(
            rows, columns, noise
        )
        return drawn

    def scope(self) -> AbstractContextManager[Any]:
        """That of the engine on the workers."""
        scope: AbstractContextManager[Any] = self.local.scope()
        return scope

    def with_prior(self, prior: Prior) -> DaskEngine:
        """The same engine and data under another prior."""
        return DaskEngine(self.data, prior, by_jax=self.by_jax, single=self.single, _cluster=self.cluster)

    def with_threads(self, n_threads: int) -> DaskEngine:
        """The same engine: its threads are the workers'."""
        return self

    def vi_shortcut(self, joint: bool) -> None:
        return None

    def gibbs_shortcut(self) -> None:
        return None

    def row_noise(self, key: tuple[int, int], sweep: int) -> Any:
        return self.local.row_noise(key, sweep)

    def vi_activations(self, columns: VIColumns, sums: Sums, weight: Array) -> tuple[Array, Array]:
        found: tuple[Array, Array] = self.local.vi_activations(columns, sums, weight)
        return found

    def gibbs_activations(self, sums: Sums, weight: Array, prior: Array, normal: Array) -> Array:
        found: Array = self.local.gibbs_activations(sums, weight, prior, normal)
        return found


class RemoteMatrix:
    """The data as starts see them (kernels/starts.py), on the workers."""

    def __init__(self, cluster: Cluster, handle: Handle) -> None:
        self.cluster, self.handle = cluster, handle
        self.scale: float = handle.local.scale

    def _ask(self, name: str, kinds: str, *args: Any) -> tuple[Any, ...]:
        if name not in ("times", "power"):  # whose argument has a row for each sample
            args = tuple(Cut(arg) if is_loadings(arg, self.cluster) else arg for arg in args)
        return self.cluster.call(self.handle, name, args, kinds, getattr(self.handle.local, name))

    def gram(self) -> Array:
        return np.asarray(self._ask("gram", "v")[0])

    def feature_gram(self) -> Array:
        return np.asarray(self._ask("feature_gram", "v")[0])

    def times(self, V: Array) -> Any:
        return self._ask("times", "r", V)[0]

    def back(self, L: Any) -> Array:
        return np.asarray(self._ask("back", "v", L)[0])

    def power(self, V: Array) -> Array:
        return np.asarray(self._ask("power", "v", V)[0])

    def filled(self, L: Any, V: Array) -> tuple[RemoteMatrix, float, float]:
        handle, change, size = self._ask("filled", "rvv", L, V)
        return RemoteMatrix(self.cluster, handle), change, size


def is_loadings(arg: Any, cluster: Cluster) -> bool:
    return isinstance(arg, np.ndarray) and len(arg) == cluster.shape[0] != cluster.shape[1]


class RemoteShears:
    """The rows' part of a search for shears (kernels/shears.py), on the workers."""

    def __init__(self, cluster: Cluster, handle: Handle) -> None:
        self.cluster, self.handle = cluster, handle
        self.shared: Array = handle.local.shared

    def profile(self, k: int, q: int, steps: Array) -> Array:
        return np.asarray(self.cluster.call(self.handle, "profile", (k, q, steps), "v", self.handle.local.profile)[0])

    def apply(self, k: int, q: int, step: float) -> None:
        self.cluster.call(self.handle, "apply", (k, q, step), "v", self.handle.local.apply)


def by_row(arg: Any, G: int) -> Any:
    """An argument, of whose arrays each shard gets its own rows where they have one for each feature."""
    if isinstance(arg, VIRows | GibbsRows):  # the host's
        kind: Any = type(arg)
        return kind(*(Cut(array) if len(array) else array for array in arg))
    if isinstance(arg, Message | GibbsColumns) and len(arg.logit) == G > 1:
        return arg._replace(logit=Cut(arg.logit))  # type: ignore[arg-type]
    return arg


def joined(parts: list[Any], axis: int) -> Any:
    """What the shards have of an array, or of a named tuple of them."""
    if isinstance(parts[0], tuple):
        return type(parts[0])(*(np.concatenate(each) if len(each[0]) else each[0] for each in zip(*parts, strict=True)))
    return np.concatenate(parts, axis=axis)


def part(prior: Prior, rows: slice) -> Prior:
    return prior.part(rows)


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
