"""Memory that is used again as soon as nobody can see it any more."""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray


def holders(blocks: list[NDArray[Any]], index: int) -> int:
    """How many references there are to a block: its pool's, this look's own, and one for every array that shows it."""
    return sys.getrefcount(blocks[index])


UNSEEN = holders([np.empty(1)], 0)  # Python versions differ in what the look itself counts for


class Memory:
    """Arrays for the states that passes return, so that a pass allocates nothing that grows with the data.

    A state is never modified once it is returned, and lives as long as its readers want it. Then its memory is
    written over by a later pass: there are as many blocks as there were ever states alive at once.
    """

    def __init__(self) -> None:
        self.blocks: defaultdict[tuple[Any, ...], list[NDArray[Any]]] = defaultdict(list)
        self.lock = threading.Lock()

    def take(self, *shape: int, dtype: Any = np.float64) -> NDArray[Any]:
        """An array of this shape, its content whatever it was; every view of it keeps it from being used again."""
        with self.lock:
            blocks = self.blocks[np.dtype(dtype), *shape]
            for index in range(len(blocks)):
                if holders(blocks, index) == UNSEEN:
                    return blocks[index][...]
            blocks.append(np.empty(shape, dtype))
            return blocks[-1][...]
