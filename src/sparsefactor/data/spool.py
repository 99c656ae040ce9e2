"""Matrices in files that nobody else sees, mapped into memory: data that need not fit there.

The files have no names once they are open, so that the system takes them away however the process ends. What a pass has
read is given back as it goes on, so that little of a file counts as this process's memory, and the system keeps of it
what there is room for.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

# Where they are, where TMPDIR is not the place for files of this size.
FOLDER = "SPARSEFACTOR_SCRATCH"
SPARE = 2**20  # a smaller file is not worth it


def scratch_folder() -> str:
    return os.environ.get(FOLDER) or tempfile.gettempdir()


class Scratch:
    """A file without a name, to be written and read; closed when nobody has it any more."""

    def __init__(self, folder: str | None = None) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile(dir=folder or scratch_folder(), prefix="sparsefactor-")  # noqa: SIM115

    def __del__(self) -> None:
        if hasattr(self, "file"):  # there was room for one
            self.file.close()


class Spool:
    """Arrays in files of one folder, by default that of SPARSEFACTOR_SCRATCH, or the system's for temporary files."""

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder or scratch_folder()
        self.maps: list[tuple[int, int, mmap.mmap]] = []  # first address, size

    def empty(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """An array of zeros in a file of its own."""
        dtype = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if size == 0:
            return np.zeros(shape, dtype)
        try:
            scratch = Scratch(self.folder)
            os.posix_fallocate(scratch.file.fileno(), 0, size)
            mapped = mmap.mmap(scratch.file.fileno(), size)
        except OSError as problem:
            raise OSError(
                f"data that are read from disk need as much room again in a folder for temporary files; "
                f"{size / 1e9:.3g} GB in {self.folder!r} could not be had ({problem}); make room, or set {FOLDER} to "
                "another folder"
            ) from problem
        array = np.frombuffer(mapped, dtype).reshape(shape)
        self.maps.append((address(array), size, mapped))
        return array

    def kept(self, array: NDArray[Any]) -> NDArray[Any]:
        """The same array in a file."""
        if array.nbytes < SPARE:
            return array
        copy = self.empty(array.shape, array.dtype)
        copy[...] = array
        self.release(copy)
        return copy

    def release(self, array: NDArray[Any] | None) -> None:
        """What was read of an array, or changed, may leave memory for its file."""
        self._advise(array, "MADV_DONTNEED")

    def ahead(self, array: NDArray[Any] | None) -> None:
        """An array is read soon: the system may begin, with as many requests at a time as the disk takes."""
        self._advise(array, "MADV_WILLNEED")

    def _advise(self, array: NDArray[Any] | None, what: str) -> None:
        if array is None or not array.size or not hasattr(mmap, what):
            return
        first = address(array)
        for start, size, mapped in self.maps:
            if start <= first < start + size:
                begin = -(-(first - start) // mmap.PAGESIZE) * mmap.PAGESIZE
                end = (first - start + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
                if end > begin:
                    mapped.madvise(getattr(mmap, what), begin, end - begin)


def address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])
