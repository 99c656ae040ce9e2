"""What a worker does: pure functions of a block of rows, its part of a state, and what the client sends."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ...data import Data
from ...data.tiles import Node, Tree
from ...executors import aligned
from ...kernels.contract import Array, GibbsColumns, GibbsRows, PrecisionNoise
from ...kernels.cpu.moves import MoveRows
from ...kernels.totals import totals_from
from ...model import Prior
from ..blocks import Part
from ..cpu import CpuEngine
from ..cpu_moves import OpenMove
from ..pinned import PinnedEngine
from ..threads import single_blas_thread

ENGINES = 3  # that a block keeps, each for a prior of its own


class Setting(NamedTuple):
    """What makes an engine of a block of data."""

    name: str  # that no other setting has
    prior: Prior  # of the block's rows
    extended: Prior | None  # with a design's directions, where there is one
    design: Any
    known: dict[str, Any]  # of the whole matrix


class Block:
    """Some rows of the data. Its engines are kept between tasks, and are built again where the block is moved to."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self.engines: dict[str, Any] = {}
        self.lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Block, (self.data,)

    def __sizeof__(self) -> int:
        """For Dask, which weighs what it moves."""
        return sizeof((self.data.Y, self.data.observed))

    def engine(self, setting: Setting) -> Any:
        """The CPU engine for these rows, inside that of a design where there is one."""
        with self.lock:
            if setting.name not in self.engines:
                own = aligned(setting)
                data = replace(self.data, design=own.design)
                vars(data).update(own.known)
                with totals_from(None):  # of this block: the client has those of all
                    self.engines[setting.name] = engine_on(data, own.prior, own.extended, threads_here())
                if len(self.engines) > ENGINES:
                    del self.engines[next(iter(self.engines))]
            return self.engines[setting.name]


def sizeof(value: Any) -> int:
    """Bytes of all arrays in it."""
    if isinstance(value, tuple | list):
        return sum(map(sizeof, value))
    return int(value.nbytes) if hasattr(value, "nbytes") else sys.getsizeof(value)


def engine_on(data: Data, prior: Prior, extended: Prior | None, n_threads: int | None) -> Any:
    """The CPU engine for some rows, inside that of a design; extended: the prior with the design's directions."""
    if extended is None:
        return CpuEngine(data, prior, n_threads)
    return PinnedEngine(CpuEngine(data.without_design(), extended, n_threads), data, prior)


def without_directions(engine: Any) -> CpuEngine:
    """The CPU engine inside that of a design, or the engine itself."""
    own: CpuEngine = getattr(engine, "inner", engine)
    return own


def threads_here() -> int | None:
    """Threads of the worker that this runs on."""
    try:
        from distributed import get_worker

        return int(get_worker().state.nthreads)
    except (ImportError, ValueError):  # on none
        return None


class Slot(NamedTuple):
    """In the place of an argument that is the block's own: its number among these."""

    number: int


class Call(NamedTuple):
    """A verb for one block.

    function: of the engine, or the name of a method. target: the object that is asked in the engine's place. answers:
    totals that the verb needs on its way, None for those that it only returns.
    """

    function: Callable[..., Any] | str
    args: tuple[Any, ...]
    kinds: str  # as in kernels/verbs.py
    target: Slot | None = None
    answers: tuple[Any, ...] = ()


@dataclass
class Outcome:
    """What a verb made of a block: what stays on the worker, branches of the tree for each sum, what is sent."""

    kept: Any = None
    sums: Sequence[list[Node]] = ()
    sent: Any = None

    def __sizeof__(self) -> int:
        return sizeof((self.kept, self.sums, self.sent))


class TotalNeeded(BaseException):
    """A verb needs the total over all blocks to go on."""


class PartialSums:
    """Totals of a verb as far as they are known; the branches of the others are noted for the client."""

    def __init__(self, answers: tuple[Any, ...]) -> None:
        self.answers, self.asked, self.sums = answers, 0, list[list[Node]]()

    def __call__(self, nodes: Sequence[Node], needed: bool) -> tuple[Any, ...]:
        number, self.asked = self.asked, self.asked + 1
        if number < len(self.answers):
            answer: tuple[Any, ...] | None = self.answers[number]
            return Tree(nodes).total() if answer is None else answer
        self.sums.append(list(nodes))
        if needed:
            raise TotalNeeded
        return Tree(nodes).total()


def run(block: Block, setting: Setting, call: Call, *kept: Outcome) -> Outcome:
    """A verb for one block; where it needs a total that is not known yet, only its sums up to there."""
    call, values = aligned(call), [aligned(own.kept) for own in kept]
    args = [values[arg.number] if isinstance(arg, Slot) else arg for arg in call.args]
    sums = PartialSums(call.answers)
    with single_blas_thread():
        engine = block.engine(setting)
        target = engine if call.target is None else values[call.target.number]
        function = getattr(target, call.function) if isinstance(call.function, str) else call.function
        try:
            with totals_from(sums):
                found = function(*args) if isinstance(call.function, str) else function(target, *args)
        except TotalNeeded:
            return Outcome(sums=sums.sums)
    each = dict(zip(call.kinds, found if len(call.kinds) > 1 else (found,), strict=False))
    return Outcome(each.get("r"), sums.sums, each.get("g"))


def sums_of(outcome: Outcome) -> Sequence[list[Node]]:
    return outcome.sums


def kept_of(outcome: Outcome) -> Outcome:
    """What stays on the worker alone."""
    return Outcome(outcome.kept)


def same(value: Any) -> Any:
    return value


def added(*blocks: Sequence[list[Node]]) -> list[list[Node]]:
    """The sums of neighbouring blocks, in their order."""
    return [Tree(node for nodes in each for node in nodes).nodes for each in zip(*blocks, strict=True)]


# ---- the sampler's moves: each block opens one, a single worker decides on all rows, and each block takes its own ----


def noise_constants(engine: Any) -> Any:
    return without_directions(engine).noise_constants()


def add_to_copy(engine: Any, tally: Any, rows: GibbsRows, scale: Array, F: Array) -> Any:
    """As `gibbs_tally_add`, which may write over the sum that it is given."""
    return engine.gibbs_tally_add(np.array(tally), rows, scale, F)


def open_move(engine: Any, rows: GibbsRows, columns: GibbsColumns) -> OpenMove:
    if hasattr(engine, "inner"):
        return engine.inner.open_move(engine.whole_rows(rows), engine.whole_columns(columns, rows))
    move: OpenMove = engine.open_move(rows, columns)
    return move


class Decided(NamedTuple):
    """What a move made of all rows."""

    rows: list[tuple[Any, Array]]  # Z and L of each block
    values: Any


def decide(name: str, args: tuple[Any, ...], *blocks: Outcome) -> Decided:
    """The move `name` of `OpenMove` on the rows of all blocks."""
    opened = [aligned(own.kept) for own in blocks]
    sums = np.concatenate([own.sums for own in opened])
    rows: list[MoveRows] = []
    parts, first = [], 0
    for own in opened:
        for block in own.blocks:
            tiles = slice(first, first + len(block.sums))
            parts.append(Part(len(rows), 0, len(block.sums)))
            changed = {field: np.array(getattr(block, field)) for field in ("Z", "L", "B", "terms")}
            rows.append(block._replace(sums=sums[tiles], **changed))
            first = tiles.stop
    columns = type(opened[0].columns)(*map(np.array, opened[0].columns))
    slab = np.array(opened[0].slab)
    whole = opened[0]._replace(blocks=rows, parts=parts, sums=sums, columns=columns, slab=slab)
    with single_blas_thread():
        values = getattr(whole, name)(*aligned(args))
    return Decided([(own.Z, own.L) for own in rows], values)


def values_of(decided: Decided) -> Any:
    return decided.values


def rows_of(decided: Decided, number: int) -> tuple[Any, Array]:
    """A block's Z and L."""
    return decided.rows[number]


def close_move(block: Block, setting: Setting, opened: Outcome, decided: tuple[Any, Array]) -> Outcome:
    """A block's rows after a move."""
    Z, L = decided
    rows, engine = opened.kept.rows._replace(Z=Z, L=L), block.engine(setting)
    return Outcome(engine.free_rows(rows) if hasattr(engine, "inner") else rows)


def draw_precisions(
    block: Block,
    setting: Setting,
    rows: Outcome,
    state: tuple[Array, ...] | Outcome,
    turn: tuple[int, int, int],
    columns: GibbsColumns,
    noise: PrecisionNoise,
) -> Outcome:
    """The block's part of a turn of rows, which are numbered among all; the state is passed on to the next block."""
    given = state.sent if isinstance(state, Outcome) else state
    after = rows.kept._replace(**{name: np.array(getattr(rows.kept, name)) for name in ("Z", "L", "tau")})
    own = tuple(np.array(values) for values in given)
    columns, noise = aligned(columns), aligned(noise)
    first, last, done = turn
    with single_blas_thread():
        offset = block.data.first
        block.engine(setting).draw_precisions(first - offset, last - offset, done, after, own, columns, noise)
    return Outcome(after, sent=own)


def state_of(outcome: Outcome) -> Any:
    return outcome.sent
