"""A matrix most of whose entries are zero before centring: what is not zero, less a product of few dimensions.

Centring, or taking off what a design explains, would fill a sparse matrix. So what is taken off stands beside it:
Y = S - A C, S (G, N) with few entries, A (G, d), C (d, N); centring has A the means and C ones (math.md, 4.6).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

CHUNK_ENTRIES = 1_000_000  # of what is made dense at a time


@dataclass(frozen=True, eq=False)
class SparseRows:
    """As far as anyone outside the row pass is concerned an array (G, N), some rows of which can be had at a time."""

    values: NDArray[np.floating]  # of S, one row after another
    columns: NDArray[np.int32]  # which entries of the rows they are
    start: NDArray[np.int64]  # (G + 1,) where each row begins
    A: NDArray[np.float64]  # (G, d)
    C: NDArray[np.float64]  # (d, N)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.start) - 1, self.C.shape[1]

    @property
    def dtype(self) -> Any:
        return self.values.dtype

    def __len__(self) -> int:
        return len(self.start) - 1

    def __getitem__(self, rows: Any) -> NDArray[np.floating]:
        """Some rows as a NumPy array; an integer gives one row."""
        if isinstance(rows, int | np.integer):
            return np.asarray(self[int(rows) : int(rows) + 1][0])
        first, last, step = rows.indices(len(self))
        assert step == 1
        own = slice(self.start[first], self.start[last])
        dense = np.zeros((last - first, self.shape[1]), self.dtype)
        if self.A.shape[1]:
            np.matmul(-self.A[first:last].astype(self.dtype), self.C.astype(self.dtype), out=dense)
        count = np.diff(self.start[first : last + 1])
        dense[np.repeat(np.arange(last - first), count), self.columns[own]] += self.values[own]
        return dense

    def __truediv__(self, divisor: Any) -> SparseRows:
        """Divided by a number, or by one for each row, (G, 1)."""
        each = np.broadcast_to(divisor, (len(self), 1))
        own = np.repeat(each[:, 0], np.diff(self.start)).astype(self.dtype)
        return replace(self, values=self.values / own, A=self.A / each)

    def less(self, L: NDArray[np.float64], F: NDArray[np.float64]) -> SparseRows:
        """Y - L F; L: (G, any), F: (any, N)."""
        return replace(self, A=np.hstack([self.A, L]), C=np.vstack([self.C, F]))

    # ---- products ---------------------------------------------------------------------------------------------------

    @property
    def S(self) -> Any:
        """S as a SciPy matrix, which shares its arrays."""
        from scipy.sparse import csr_array

        return csr_array((self.values, self.columns, self.start), shape=self.shape)

    def times(self, V: NDArray[np.float64]) -> NDArray[np.float64]:
        """(G, r) Y V; V: (N, r)."""
        return np.asarray(self.S @ V - self.A @ (self.C @ V))

    def back(self, L: NDArray[np.float64]) -> NDArray[np.float64]:
        """(N, r) Y'L; L: (G, r)."""
        return np.asarray(self.S.T @ L - self.C.T @ (self.A.T @ L))

    def feature_gram(self) -> NDArray[np.float64]:
        """(G, G) Y Y'."""
        gram = np.empty((len(self), len(self)))
        for part in self.parts():
            gram[:, part] = self.times(self[part].T.astype(np.float64))
        return gram

    def parts(self) -> Any:
        """Slices of rows of about CHUNK_ENTRIES entries."""
        step = max(1, CHUNK_ENTRIES // max(1, self.shape[1]))
        return (slice(begin, begin + step) for begin in range(0, len(self), step))

    def largest(self) -> NDArray[np.float64]:
        """(G,) the largest magnitude in each row."""
        out = np.empty(len(self))
        for part in self.parts():
            out[part] = np.abs(self[part]).max(axis=1)
        return out

    def part(self, rows: slice) -> SparseRows:
        """Some of the rows."""
        first, last, _ = rows.indices(len(self))
        start = self.start[first : last + 1]
        own = slice(start[0], start[-1])
        A = np.ascontiguousarray(self.A[first:last])
        return SparseRows(self.values[own], self.columns[own], start - start[0], A, self.C)

    def dense(self) -> NDArray[np.floating]:
        """All of it, as a NumPy array."""
        return np.concatenate([self[part] for part in self.parts()])

    @property
    def digest_arrays(self) -> list[NDArray[Any]]:
        """Everything that decides the entries."""
        return [self.values, self.columns, self.start, self.A, self.C]
