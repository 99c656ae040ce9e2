"""Draws on disk: sealed files of so many draws of one chain, each of which knows its run, chain and place.

A chunk is written whole. Draws of an unfinished chunk wait in memory, and in the chain's checkpoint. Nothing else
says which chunks there are: a chain's checkpoint knows how many draws it has kept, and chunks beyond are made again.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..atomic import sync
from .draws import ROUNDED, Arrays, Layout
from .lazy import LazyDraws, relabelled_tree
from .packing import PackingError, pack_bits, pack_floats, rounded, unpack_bits, unpack_floats
from .sealed import Sealed, SealedError, seal, write_atomically

FOLDER = "sampler"  # the name says whose labels the draws carry
KIND = b"SPFDRAWS"
VERSION = 1
BITS = "inclusion"
# What is zero where BITS is.
MASKED = "loadings"
MOST_LARGER = 16  # than today's chunk may one be that another version wrote


def pack(values: Arrays) -> dict[str, bytes]:
    """Draws of one chain, (draw, ...) by name, as few bytes; every bit is kept."""
    return {
        name: pack_bits(array) if name == BITS else pack_floats(array, values[BITS] if name == MASKED else None)
        for name, array in values.items()
    }


def unpack(layout: Layout, name: str, n: int, content: Any) -> NDArray[Any]:
    """(n, ...) the draws of one variable; content: a function from a name to packed bytes."""
    kept = layout.variables[name]
    shape = (n, *kept.shape)
    if name == BITS:
        return unpack_bits(content(BITS), shape, kept.dtype)
    mask = unpack(layout, BITS, n, content) if name == MASKED else None
    return unpack_floats(content(name), shape, mask)


class StoredDraws:
    """The draws of a run in its folder. token: the run's own, which every chunk carries; size: draws in a chunk."""

    def __init__(
        self, layout: Layout, folder: Path, token: str, size: int, n_chains: int, n_draws: int, precision: str
    ) -> None:
        self.layout, self.folder, self.token, self.size = layout, folder / FOLDER, token, size
        self.n_chains, self.n_draws, self.precision = n_chains, n_draws, precision
        if not 1 <= size <= MOST_LARGER * layout.chunk:
            raise ValueError(f"a chunk must be small; {str(folder)!r} says it has {size} draws; use a copy of the run")
        self.buffers: list[Arrays] = [{} for _ in range(n_chains)]
        self.unsettled: list[list[Path]] = [[] for _ in range(n_chains)]

    def path(self, chain: int, chunk: int) -> Path:
        return self.folder / f"chain-{chain}" / f"{chunk:06d}.draws"

    # ---- writing ----------------------------------------------------------------------------------------------

    def keep(self, chain: int, t: int, values: dict[str, Any]) -> None:
        size = self.size
        for name, waiting in self._buffer(chain).items():
            single = name in ROUNDED and self.precision == "single"
            waiting[t % size] = rounded(np.asarray(values[name])) if single else values[name]
        if (t + 1) % size == 0:
            self._write(chain, t // size, size)

    def pending(self, chain: int, kept: int) -> Arrays:
        n = kept % self.size
        packed = pack({name: waiting[:n] for name, waiting in self._buffer(chain).items()})
        return {name: np.frombuffer(content, np.uint8) for name, content in packed.items()}

    def restore(self, chain: int, kept: int, pending: Arrays) -> None:
        n = kept % self.size
        for name, waiting in self._buffer(chain).items():
            waiting[:n] = unpack(self.layout, name, n, lambda part: pending[part].tobytes())

    def settle(self, chain: int) -> None:
        for path in self.unsettled[chain]:
            sync(path)
        if self.unsettled[chain]:
            sync(self.path(chain, 0).parent)
        self.unsettled[chain].clear()

    def finish(self, chain: int, kept: int) -> None:
        rest = kept % self.size
        if rest:
            self._write(chain, kept // self.size, rest)

    def _buffer(self, chain: int) -> Arrays:
        if not self.buffers[chain]:
            self.buffers[chain] = {
                name: np.empty((self.size, *kept.shape), dtype=kept.dtype)
                for name, kept in self.layout.variables.items()
            }
        return self.buffers[chain]

    def _write(self, chain: int, chunk: int, n: int) -> None:
        path = self.path(chain, chunk)
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True)
            sync(self.folder)
            sync(self.folder.parent)
        facts = {"version": VERSION, "run": self.token, "chain": chain, "chunk": chunk, "draws": n}
        packed = pack({name: waiting[:n] for name, waiting in self._buffer(chain).items()})
        write_atomically(path, *seal(KIND, facts, packed), durable=False)
        self.unsettled[chain].append(path)

    # ---- reading ----------------------------------------------------------------------------------------------

    def tree(self) -> xr.DataTree:
        """All draws under the sampler's own labels, read when looked at."""
        variables = {}
        for name, kept in self.layout.variables.items():
            lazy = LazyDraws(partial(self.read, name), (self.n_chains, self.n_draws, *kept.shape), kept.dtype)
            variables[name] = lazy.variable(("chain", "draw", *kept.dims))
        return self.layout.tree(self.n_chains, self.n_draws, variables)

    def labelled(self, permutations: NDArray[np.intp], signs: NDArray[np.int8]) -> xr.DataTree:
        return relabelled_tree(self.tree(), permutations, signs)

    def read(self, name: str, chain: int, first: int, last: int) -> NDArray[Any]:
        """Some draws of one chain, verified; damage is a ValueError that names the file."""
        kept, size = self.layout.variables[name], self.size
        out: NDArray[Any] = np.empty((last - first, *kept.shape), dtype=kept.dtype)
        for chunk in range(first // size, -(-last // size)):
            begin, end = max(first, chunk * size), min(last, (chunk + 1) * size)
            path = self.path(chain, chunk)
            try:
                with path.open("rb") as file:
                    sealed = self._opened(file, chain, chunk, end - chunk * size)
                    draws = unpack(self.layout, name, sealed.facts["draws"], sealed.read)
            except (SealedError, PackingError, OSError) as problem:
                raise _lost(path, problem) from problem
            out[begin - first : end - first] = draws[begin - chunk * size : end - chunk * size]
        return out

    def check(self, kept: Iterable[int]) -> None:
        """Verify every byte of the chunks that hold the first draws of each chain; kept: how many, by chain."""
        size = self.size
        for chain, n in enumerate(kept):
            for chunk in range(-(-n // size)):
                path = self.path(chain, chunk)
                try:
                    with path.open("rb") as file:
                        self._opened(file, chain, chunk, min(size, n - chunk * size)).check()
                except (SealedError, OSError) as problem:
                    raise _lost(path, problem) from problem

    def _opened(self, file: Any, chain: int, chunk: int, least: int) -> Sealed:
        """A chunk whose header says that it is the one that belongs here."""
        sealed = Sealed(file, KIND, "a chunk of draws")
        facts = sealed.facts
        if facts.get("version") != VERSION:
            raise SealedError(f"has version {facts.get('version')!r}, and this sparsefactor reads {VERSION}")
        if facts.get("run") != self.token:
            raise SealedError("belongs to another run")
        if facts.get("chain") != chain or facts.get("chunk") != chunk:
            raise SealedError(f"is chunk {facts.get('chunk')} of chain {facts.get('chain')}, in another's place")
        draws = facts.get("draws")
        if not isinstance(draws, int) or not least <= draws <= self.size:
            raise SealedError(f"has {draws!r} draws, not {least}")
        return sealed


def _lost(path: Path, problem: Exception) -> ValueError:
    what = "is not there" if isinstance(problem, FileNotFoundError) else str(problem)
    return ValueError(
        f"all draws of a run must be on disk, whole and where they were written; {str(path)!r} {what}; "
        "restore it from a copy, or sample again with another path; sf.load(path, check=False) opens the run "
        "for what is whole"
    )
