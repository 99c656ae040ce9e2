"""How kernels are compiled: Numba's options, and compiled code kept on disk where that can be done.

A cache that cannot be written, is full or damaged costs time, never a fit: the kernels are then compiled in memory,
with one warning.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core import caching, config
from numba.core.compiler_lock import global_compiler_lock

from .compile_progress import compile_progress

# Division by zero gives inf as in NumPy; sums may be taken in any order, but infinities and NaN keep their meaning.
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "reassoc", "nsz"}}
# Where the order of operations matters: to accuracy, or because a product of two large numbers would overflow.
EXACT: dict[str, Any] = {**OPTIONS, "fastmath": {"contract"}}
# What must round the same wherever it is compiled into: what may run as Python too, and what two callers share. With
# any freedom left, the bits depend on what a function is inlined into, and on whether it comes from the cache.
STRICT: dict[str, Any] = {**OPTIONS, "fastmath": False}
# For what is called in inner loops: a call that passes several arrays takes longer than a short loop.
INLINE: dict[str, Any] = {**OPTIONS, "forceinline": True}
INLINE_EXACT: dict[str, Any] = {**EXACT, "forceinline": True}
INLINE_STRICT: dict[str, Any] = {**STRICT, "forceinline": True}
# For a kernel that is given a bare 0 by another, Numba takes the 0 for a type of its own and compiles once more.
ZERO = np.int64(0)


class CacheWarning(UserWarning):
    """Compiled kernels could not be kept on disk, or what was kept there could not be read."""


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit` with a cache on disk that may fail."""

    def decorate(function: Callable[..., Any]) -> Any:
        kernel = numba.njit(**options)(function)
        kernel.is_sparsefactor_kernel = True
        if hasattr(kernel, "enable_caching"):  # not where NUMBA_DISABLE_JIT is set
            try:
                kernel._cache = KernelCache(function)
            except Exception as problem:
                kernel._cache = NoCache()
                _warn(getattr(config, "CACHE_DIR", "") or str(Path(__file__).parent / "__pycache__"), problem)
        return kernel

    return decorate


class NoCache(caching.NullCache):
    """Where there is no folder: each kernel is compiled when it is first called."""


class KernelCache(caching.FunctionCache):
    """Numba's cache of a function; trouble with it is no trouble for the function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = KernelFile(
            cache_path=self._cache_path,
            filename_base=self._impl.filename_base,
            source_stamp=(self._impl.locator.get_source_stamp(), _sources()),
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = None
        try:
            found = super().load_overload(sig, target_context)
        except Exception as problem:
            _warn(self.cache_path, problem)
            self._attempt(self.flush)  # what is compiled now takes its place
        if found is not None:
            compile_progress.count_loaded()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        self._attempt(super().save_overload, sig, data)

    def _attempt(self, write: Callable[..., None], *args: Any) -> None:
        try:
            write(*args)
        except Exception as problem:
            _warn(self.cache_path, problem)


class KernelFile(caching.IndexDataCacheFile):
    """Compiled code with a digest, bound to what it was compiled for.

    Two processes that compile at the same time may write each other's files; Numba alone would run the other's code.
    """

    def __init__(self, **where: Any) -> None:
        super().__init__(**where)
        # Read before anything else of an index: what other sources left may name classes that are gone.
        self._version = f"{self._version} {_sources()}"

    def save(self, key: Any, data: Any) -> None:
        code = self._dump((key, data))
        super().save(key, (hashlib.sha256(code).digest(), code))

    def load(self, key: Any) -> Any:
        found = super().load(key)
        if found is None:
            return None
        digest, code = found
        if hashlib.sha256(code).digest() != digest:
            raise ValueError("its digest is wrong")
        stored, data = pickle.loads(code)
        return data if stored == key else None


def _sources() -> str:
    """A digest of all kernels' text, since one inlines another; Numba itself looks at a function's own file only."""
    global _stamp
    if not _stamp:
        texts = (path.read_bytes() for path in sorted(Path(__file__).parents[1].rglob("*.py")))
        _stamp = hashlib.sha256(b"\0".join(texts)).hexdigest()
    return _stamp


_stamp = ""
_warned = False


def _warn(folder: str, problem: Exception) -> None:
    """Once a process: every kernel would have the same to say."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"compiled kernels are kept on disk between runs; {folder} does not serve ({type(problem).__name__}: "
            f"{problem}), so they are compiled in memory, which takes seconds; make room, delete that folder's *.nbi "
            "and *.nbc files, or set NUMBA_CACHE_DIR to a folder that can be written",
            CacheWarning,
            stacklevel=4,
        )


if hasattr(os, "register_at_fork"):
    # A child that is forked while another thread compiles would wait for ever for the compiler's lock.
    os.register_at_fork(
        before=global_compiler_lock.acquire,
        after_in_parent=global_compiler_lock.release,
        after_in_child=global_compiler_lock.release,
    )
