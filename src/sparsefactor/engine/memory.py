"""Memory that is used again as soon as nobody can see it any more."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def holders(blocks: list[NDArray[Any]], index: int) -> int:
    """How many references there are to a block: its pool's, this look's own, and one for every array that shows it."""
    return sys.getrefcount(blocks[index])


UNSEEN = holders([np.empty(1)], 0)  # Python versions differ in what the look itself counts for


class Memory:
    """Arrays for the states that passes return, so that a sweep allocates nothing that grows with the data.

    A state is never modified once it is returned, and lives as long as its readers want it. Then its memory is
    written over by a later pass: there are as many blocks as there were ever states alive at once.
    """

    def __init__(self) -> None:
        self.blocks: list[NDArray[Any]] = []
        self.lock = threading.Lock()

    def take(self, *shape: int, dtype: DTypeLike = np.float64) -> NDArray[Any]:
        """An array of this shape, its content whatever it was; every view of it keeps it from being used again."""
        size, kind = int(np.prod(shape)), np.dtype(dtype)
        with self.lock:
            for index in range(len(self.blocks)):
                fits = self.blocks[index].size == size and self.blocks[index].dtype == kind
                if fits and holders(self.blocks, index) == UNSEEN:
                    return self.blocks[index].reshape(shape)
            self.blocks.append(np.empty(size, kind))
            return self.blocks[-1].reshape(shape)
