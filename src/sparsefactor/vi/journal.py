"""An engine that notes what its rows have said, so that a search which was cut short can be gone on with.

A search is a function of what its engine returns: a few numbers, sums of the size of the columns, and rows, which it
only hands on. So the sums are written to a journal as they come, and now and then the rows that anybody still holds.
A search that is begun again runs as it did before, but for the passes over the data: its engine answers from the
journal, up to where rows were last written, and goes on from there. No part of the search need know of it, and the end
is the same to the bit, also with another engine of the same name, or another number of workers.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..kernels import contract
from ..kernels.contract import NONE, NOWHERE, Array, GibbsRows, Sums, VIColumns, VIRows
from ..kernels.verbs import KINDS, MATRIX_KINDS, SHEARS_KINDS
from ..model import Prior
from ..storage.journal import Journal, packed, unpacked
from ..storage.sealed import Sealed, SealedError, seal, write_atomically

logger = logging.getLogger("sparsefactor")

SEAL = b"SPFROWS1"
ROWS, JOURNAL = "rows.checkpoint", "journal"
SHARE = 20.0  # of the time, one part in so many may go into writing rows
SAME = {"NONE": NONE, "NOWHERE": NOWHERE}
TUPLES = {name: kind for name, kind in vars(contract).items() if hasattr(kind, "_fields")}
LOADINGS = ("start_normals", "start_turn", "start_join", "vi_scatter", "times")
OTHERS = ("vi_unsorted", "vi_sortings", "gibbs_tally", "gibbs_tally_add", "gibbs_tally_return", "filled")


def forget(folder: Path) -> None:
    """A search that is done will not be gone on with."""
    for name in (ROWS, JOURNAL):
        (folder / name).unlink(missing_ok=True)


class Ref:
    """What the engine has returned and keeps: rows, loadings of a start, the matrix that starts see."""

    def __init__(self, key: str, kind: str, engine: Any, value: Any) -> None:
        self.key, self.kind, self.engine, self.value = key, kind, engine, value


def kind_of(verb: str) -> str:
    """How what a verb returns is written down: as rows of either method, as loadings, made again, or not at all."""
    if verb in OTHERS:
        return "other"
    if verb in ("start_matrix", "vi_shears"):
        return verb
    if verb in LOADINGS:
        return "loadings"
    return "gibbs" if verb.startswith("gibbs_") or verb == "vi_draw" else "vi"


class Notes:
    """The journal of one search, and what of it is known from before."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.rows, self.seconds = folder / ROWS, seconds
        self.journal = Journal(folder / JOURNAL)
        self.count = 0  # calls so far
        self.live: weakref.WeakValueDictionary[str, Ref] = weakref.WeakValueDictionary()
        self.since, self.cost = time.monotonic(), 0.0
        self.saved: Sealed | None = None
        self.known = 0  # calls that are answered from the journal
        if self.rows.exists():
            file = self.rows.open("rb")
            try:
                self.saved = Sealed(file, SEAL, "a checkpoint of rows")
                self.known = int(self.saved.facts["count"])
            except (SealedError, KeyError) as problem:
                file.close()
                logger.warning("rows.checkpoint %s; the search begins again", problem)
        if len(self.journal) < self.known:
            logger.warning("the journal of a search lacks its end; the search begins again")
            self.known = 0
        self.journal.cut(self.known)
        if self.known:
            logger.info("VI goes on after %d calls of its engine", self.known)

    @property
    def replaying(self) -> bool:
        return self.count < self.known

    def call(self, engine: Any, verb: str, kinds: str, ask: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """A verb's answer: from the journal, or from the engine and then noted there."""
        self.count += 1
        if self.count <= self.known:
            small = unpacked(self.journal[self.count - 1], SAME, TUPLES)
            result = self.refs(engine, verb, kinds, small, None)
            if self.count == self.known:
                self.restore()
            return result
        found = ask(*(arg.value if isinstance(arg, Ref) else arg for arg in args))
        each = found if len(kinds) > 1 else (found,)
        small = [len(one) if kind == "l" else one for kind, one in zip(kinds, each, strict=True) if kind != "r"]
        self.journal.add(packed(small, SAME))
        result = self.refs(engine, verb, kinds, small, each)
        if time.monotonic() - self.since > max(self.seconds, SHARE * self.cost):
            self.save()
        return result

    def refs(self, engine: Any, verb: str, kinds: str, small: list[Any], found: Any) -> Any:
        """What a verb returns, with a `Ref` for all that the engine keeps."""
        rest = iter(small)
        out: list[Any] = []
        for place, kind in enumerate(kinds):
            own = None if found is None else found[place]
            if kind == "r":
                out.append(self.ref(f"{self.count}.{place}", verb, engine, own))
            elif kind == "l":
                n = next(rest)
                out.append([self.ref(f"{self.count}.{place}.{i}", verb, engine, own and own[i]) for i in range(n)])
            else:
                out.append(next(rest))
        return tuple(out) if len(kinds) > 1 else out[0]

    def ref(self, key: str, verb: str, engine: Any, value: Any) -> Ref:
        made = Ref(key, kind_of(verb), engine, value)
        self.live[key] = made
        return made

    def close(self) -> None:
        self.journal.close()
        if self.saved is not None:
            self.saved.file.close()

    # ---- rows -------------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write down all rows that somebody holds, unless there is something that cannot be."""
        live = [ref for ref in self.live.values() if ref.kind != "start_matrix"]
        if any(ref.kind in ("other", "vi_shears") for ref in live):
            return
        begun = time.monotonic()
        self.journal.settle()
        sections = {ref.key: packed(fetched(ref), SAME) for ref in live}
        write_atomically(self.rows, *seal(SEAL, {"count": self.count}, sections))
        self.since = time.monotonic()
        self.cost = self.since - begun

    def restore(self) -> None:
        """Give all that is held what it had when rows were last written."""
        assert self.saved is not None
        for ref in self.live.values():
            if ref.kind == "start_matrix":
                ref.value = ref.engine.start_matrix()
            elif ref.key in self.saved.sections:
                ref.value = unpacked(self.saved.read(ref.key), SAME, TUPLES)
        self.since = time.monotonic()


def fetched(ref: Ref) -> Any:
    """Rows or loadings as the host has them."""
    if ref.kind == "loadings":
        return np.asarray(ref.engine.vi_fetch(ref.engine.vi_place(ref.value)).mu)
    rows: VIRows | GibbsRows
    rows = ref.engine.vi_fetch(ref.value) if ref.kind == "vi" else ref.engine.gibbs_fetch(ref.value)
    return rows


class JournalEngine:
    """An engine whose answers are noted. It has no shortcut: what is so small needs none of this."""

    one_caller, n_threads = True, 1  # answers are noted in the order in which they were asked for

    def __init__(self, inner: Any, notes: Notes) -> None:
        self.inner, self.notes = inner, notes
        self.data, self.prior, self.name, self.compiles = inner.data, inner.prior, inner.name, inner.compiles

    @property
    def replaying(self) -> bool:
        """Whether answers come from the journal."""
        return self.notes.replaying

    @property
    def moves(self) -> tuple[str, ...]:
        moves: tuple[str, ...] = self.inner.moves
        return moves

    def scope(self) -> AbstractContextManager[Any]:
        scope: AbstractContextManager[Any] = self.inner.scope()
        return scope

    def with_prior(self, prior: Prior) -> JournalEngine:
        return JournalEngine(self.inner.with_prior(prior), self.notes)

    def with_threads(self, n_threads: int) -> JournalEngine:
        return JournalEngine(self.inner.with_threads(n_threads), self.notes)

    def vi_shortcut(self, joint: bool) -> None:
        return None

    def gibbs_shortcut(self) -> None:
        return None

    def row_noise(self, key: tuple[int, int], sweep: int) -> Any:
        return self.inner.row_noise(key, sweep)

    def vi_activations(self, columns: VIColumns, sums: Sums, weight: Array) -> tuple[Array, Array]:
        found: tuple[Array, Array] = self.inner.vi_activations(columns, sums, weight)
        return found

    def gibbs_activations(self, sums: Sums, weight: Array, normal: Array) -> Array:
        found: Array = self.inner.gibbs_activations(sums, weight, normal)
        return found

    def __getattr__(self, name: str) -> Any:
        """A verb."""
        if name not in KINDS:
            raise AttributeError(name)
        verb, kinds = getattr(self.inner, name), KINDS[name]
        if kinds == "g":  # to the host: nothing that the search goes by
            return lambda *args: verb(*(arg.value if isinstance(arg, Ref) else arg for arg in args))
        if name == "start_matrix":
            return lambda: NotedMatrix(self, self._call(name, kinds, verb))
        if name == "vi_shears":
            return lambda *args: NotedShears(self, self._call(name, kinds, verb, *args))
        return partial(self._call, name, kinds, verb)

    def _call(self, name: str, kinds: str, ask: Callable[..., Any], *args: Any) -> Any:
        return self.notes.call(self.inner, name, kinds, ask, args)


class Noted:
    """An object of the engine's with verbs of its own, and one number or array that it shows."""

    kinds: dict[str, str]
    shown: str

    def __init__(self, engine: JournalEngine, ref: Ref) -> None:
        self.engine, self.ref = engine, ref
        setattr(self, self.shown, self._ask(self.shown, "v", lambda own: getattr(own, self.shown)))

    def __getattr__(self, name: str) -> Any:
        if name not in self.kinds:
            raise AttributeError(name)
        return partial(self._ask, name, self.kinds[name], lambda own, *args: getattr(own, name)(*args))

    def _ask(self, name: str, kinds: str, ask: Callable[..., Any], *args: Any) -> Any:
        return self.engine._call(name, kinds, ask, self.ref, *args)


class NotedMatrix(Noted):
    """The data as starts see them."""

    kinds, shown = MATRIX_KINDS, "scale"

    def filled(self, L: Any, V: Array) -> tuple[NotedMatrix, float, float]:
        ref, change, size = self._ask("filled", MATRIX_KINDS["filled"], lambda own, *args: own.filled(*args), L, V)
        return NotedMatrix(self.engine, ref), change, size


class NotedShears(Noted):
    """The rows' part of a search for shears."""

    kinds, shown = SHEARS_KINDS, "shared"
