"""A worker's rows, and the verbs that are run on them."""

from __future__ import annotations

import pickle
import threading
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy as np

from ...data import Data
from ...data.matrix import BY_ROW
from ...data.spool import Scratch
from ...data.tiles import Tree
from ...explained import fit_parts
from ...kernels.exchange import Exchange
from ...model import Prior
from ..threads import single_blas_thread
from .jax_passes import JaxPasses, device_of
from .keeping import restored, saved
from .messages import (
    NOTHING_PASSED,
    Call,
    Kept,
    Key,
    NotPassedOnError,
    Passed,
    Reply,
    ShardExchange,
    ShardLostError,
)


class Shard:
    """Some rows. It is asked by one message after another, numbered, and says what its verb does with each."""

    def __init__(self, number: int, bounds: list[slice], n_threads: int | None = None) -> None:
        self.number, self.bounds, self.n_threads = number, bounds, n_threads
        self.exchange = ShardExchange(number, bounds)
        self.kept: dict[Key, Any] = {}
        self.calls: SimpleQueue[Call | None] = SimpleQueue()
        self.seen = 0
        self.data: Data | None = None
        self.held: Any = None
        self.device: Any = None
        self.scratch: Scratch | None = None  # of what was kept when it was last written down
        self.passed: tuple[int, bytes] = NOTHING_PASSED
        self.reach = _reach()
        threading.Thread(target=self._work, name=f"sparsefactor-shard-{number}", daemon=True).start()

    def ask(self, seen: int, message: bytes) -> bytes:
        """The reply to the next message; seen: how many there were before."""
        if seen != self.seen:
            return pickle.dumps(Reply([], True, [], ShardLostError(f"{self.seen} messages seen, not {seen}")))
        request = pickle.loads(message)
        if isinstance(request, Passed):
            key, own = self.passed
            if key != request.key:
                return pickle.dumps(Reply([], True, [], NotPassedOnError()))
            request, self.passed = pickle.loads(own), NOTHING_PASSED
        self.seen += 1
        if isinstance(request, Call):
            self.calls.put(request)
        else:
            self.exchange.answers.put(request.value)
        return pickle.dumps(self.exchange.replies.get(), protocol=5)

    def _work(self) -> None:
        while (call := self.calls.get()) is not None:
            try:
                with single_blas_thread():  # not while it waits: others may be in this process
                    values, error = self._run(call), None
            except BaseException as problem:
                values, error = [], problem
            sent, self.exchange.sent = self.exchange.sent, []
            self.exchange.replies.put(Reply(sent, True, values, error))
            del call

    def _run(self, call: Call) -> list[Any]:
        self.exchange.begin(call.number)
        for key in call.free:
            self.kept.pop(key, None)
        target = self if call.target is None else self.kept[call.target]
        found = getattr(target, call.name)(*(self._own(arg) for arg in call.args))
        place, values = 0, []
        for kind, result in zip(call.kinds, found if len(call.kinds) > 1 else (found,), strict=True):
            if kind == "g":
                values.append(result)
            for kept in {"r": [result], "l": result}.get(kind, []):
                self.kept[call.number, place] = kept
                place += 1
        return values

    def _own(self, arg: Any) -> Any:
        return self.kept[arg.key] if isinstance(arg, Kept) else arg

    # ---- sums of neighbours, on the worker's event loop: nobody waits there for one who waits ------------------------

    async def take_on(self, key: int, message: bytes, others: list[tuple[str, str]]) -> None:
        """A message for us that is to be asked about later, and for the shards that follow."""
        import asyncio

        self.passed = key, message
        calls = [_answer(self.reach(*other).take_on(key, message, [])) for other in others]
        await asyncio.gather(*calls, return_exceptions=True)  # who lacks it will say so

    async def handed(self, key: Key) -> bytes:
        """The branches that we hold."""
        return pickle.dumps(self.exchange.held[key], protocol=5)

    async def gathered(self, key: Key, others: list[tuple[str, str]], patience: float) -> bytes:
        """Our branches added up with those of the shards that follow, by worker and actor; or which did not answer."""
        import asyncio

        found = await asyncio.gather(*(self._fetched(key, *other, patience) for other in others))
        missing = [number for number, nodes in enumerate(found) if nodes is None]
        if missing:
            return pickle.dumps((None, missing))
        return await asyncio.to_thread(self._joined, key, found)

    async def _fetched(self, key: Key, worker: str, actor: str, patience: float) -> bytes | None:
        import asyncio

        try:
            return await asyncio.wait_for(_answer(self.reach(worker, actor).handed(key)), patience)
        except (OSError, TimeoutError, KeyError, RuntimeError, ValueError):
            return None

    def _joined(self, key: Key, found: list[Any]) -> bytes:
        tree = Tree(self.exchange.held[key])
        for nodes in found:
            for node in pickle.loads(nodes):
                tree.add_node(node)
        return pickle.dumps((tree.nodes, []), protocol=5)

    # ---- the data -------------------------------------------------------------------------------------------------

    @property
    def rows(self) -> slice:
        return self.bounds[self.number]

    def hold(self, source: Any, dtype: Any, folder: str | None) -> Any:
        """Read our features of a source; what they are like."""
        from ...data.reading_blocks import Held

        self.held = Held(source, self.rows.start, self.rows.stop, dtype, folder)
        return self.held.look()

    def prepare(self, complete: bool, center: bool, scale: bool, n_rows: int) -> tuple[Any, ...]:
        """Centre and scale them; offsets, scales, largest magnitudes, and what is measured of the rows."""
        Y, observed, offset, spread, biggest = self.held.prepared(complete, center, scale)
        nobody = np.arange(len(Y))
        self.data = Data(Y, observed, offset, nobody, np.arange(Y.shape[1]), scale=spread, first=self.rows.start,
                         n_rows=n_rows, spool=self.held.spool)  # fmt: skip
        self.held = None
        return offset, spread, biggest, measured(self.data)

    def take(self, data: Data) -> None:
        """Our rows as the client sends them."""
        self.data = data

    def squares(self, biggest: float) -> list[float]:
        """What chunks of rows add to the sum of squares of the data over `biggest`."""
        assert self.data is not None
        return self.data.chunk_squares(biggest)

    def divide(self, unit: float, known: dict[str, Any], design: Any) -> Any:
        """Divide the data by a power of two; the whole matrix's measures, and its design."""
        assert self.data is not None
        data = self.data if unit == 1.0 else self.data.divided(unit)
        self.data = replace(data, design=design)
        vars(self.data).update(known)
        return measured(self.data) if unit != 1.0 else None

    def residual(self, design: Any) -> Any:
        """What is measured of the data less what a design explains."""
        assert self.data is not None
        return measured(replace(self.data, design=design).residual())

    def measured_without(self, L: Any, F: Any) -> Any:
        """What is measured of each row of the data less L F."""
        assert self.data is not None
        left = self.data.without(L, F)
        return {name: getattr(left, name) for name in BY_ROW}

    def residual_squares(self, design: Any, biggest: float) -> list[float]:
        """As `squares`, of the data less what a design explains."""
        assert self.data is not None
        return replace(self.data, design=design).residual().chunk_squares(biggest)

    def fit_parts(
        self, off: Any, L: Any, F: Any, group: Any, n_groups: int, divisors: list[float], *tallies: Any
    ) -> tuple[Any, Any]:
        """What our rows add to what fits explain: those of L and F, or sums that we have over their divisors.

        off: whose product is to be taken off first.
        """
        assert self.data is not None
        signals = [
            lambda rows, tally=tally, divisor=divisor: tally[:, rows].T / divisor
            for tally, divisor in zip(tallies, divisors, strict=True)
        ]
        data = self.data if off is None else self.data.without(*off)
        return fit_parts(data, signals or None, L, F, group, n_groups)

    def values(self, first: int, last: int) -> tuple[Any, Any]:
        """Y and the mask of some of our rows, by their numbers among all."""
        assert self.data is not None
        rows = slice(first - self.rows.start, last - self.rows.start)
        seen = None if self.data.observed is None else np.array(self.data.observed[rows])
        return np.array(self.data.Y[rows]), seen

    # ---- engines, and states --------------------------------------------------------------------------------------

    def build(self, prior: Prior, extended: Prior | None, by_jax: bool, single: bool) -> Any:
        """The engine for our part of a prior; extended: with a design's directions, where there is one."""
        assert self.data is not None
        if by_jax and self.device is None:  # which has the data from now on
            self.device = device_of(self.data.without_design(), extended or prior, single)
        return engine_on(self.data, prior, extended, self.n_threads, self.exchange, by_jax, self.device)

    def save(self) -> None:
        """Write down all that is kept but engines, for `saved_piece`."""
        self.scratch = saved(self)

    def saved_piece(self, first: int, size: int) -> bytes:
        """So many bytes of what was written down, from this one on."""
        assert self.scratch is not None
        self.scratch.file.seek(first)
        return self.scratch.file.read(size)

    def restore(self, piece: bytes, last: bool) -> None:
        """What another shard of these rows has kept, piece by piece; engines are there already."""
        self.scratch = self.scratch or Scratch()
        self.scratch.file.write(piece)
        if last:
            self.kept.update(restored(self.scratch, self))
            self.scratch = None


async def _answer(future: Any) -> Any:
    return await future


def _reach() -> Any:
    """How to get at another shard from the Dask worker that this is on; None where there is none."""
    try:
        from distributed import get_worker
        from distributed.actor import Actor

        worker = get_worker()
    except (ImportError, ValueError):
        return None
    return lambda address, key: Actor(Shard, address, key, worker=worker)


def engine_on(
    data: Data,
    prior: Prior,
    extended: Prior | None,
    n_threads: int | None,
    exchange: Exchange,
    by_jax: bool,
    device: Any,
) -> Any:
    """The CPU engine for some rows, around which stands that of a design; device: its JAX engine, if rows have one."""
    from ..cpu import CpuEngine

    kind: Any = partial(JaxPasses, device=device) if by_jax else CpuEngine
    if extended is None:
        return kind(data, prior, n_threads, exchange=exchange)
    from ..pinned import PinnedEngine

    return PinnedEngine(kind(data.without_design(), extended, n_threads, exchange=exchange), data, prior)


def measured(data: Data) -> dict[str, Any]:
    """What is measured of some rows of a matrix; sums over rows as branches of the tree."""
    by_row = {name: getattr(data, name) for name in BY_ROW}
    seen = None if data.observed is None else sum(data.observed[rows].sum(axis=0) for rows in data.chunks())
    found = data.measures
    return by_row | {"column_ss": found.column_ss, "column_count": seen, "biggest": found.biggest}
