"""read_table: a file made by others becomes a frame of samples by features, and what was read can be said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .binary import READERS, format_of
from .cells import GROUPS
from .guess import check_orientation
from .limits import MAX_BYTES, check_file
from .text import read_text

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What the caller says about a file; None is for the reader to find out."""

    sep: str | None = None
    header: bool | None = None
    index: bool | None = None
    na: tuple[str, ...] = ()
    transpose: bool | None = None
    decimal: str | None = None
    encoding: str | None = None
    drop: tuple[str, ...] = ()
    thousands: str | None = None
    max_bytes: int | None = None
    few: bool = False  # whether one column of numbers is enough, as it is for covariates

    @property
    def limit(self) -> int:
        """Bytes that a table may take."""
        return MAX_BYTES if self.max_bytes is None else self.max_bytes

    def __post_init__(self) -> None:
        size = self.max_bytes
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
            raise ValueError(
                f"max_bytes must be a whole number of bytes above 0; got {size!r}; pass e.g. 8_000_000_000"
            )
        if self.sep is not None and (not isinstance(self.sep, str) or len(self.sep) != 1):
            raise ValueError(f"sep must be one character; got {self.sep!r}; pass e.g. ';' or a tab")
        if self.decimal not in (None, ".", ","):
            raise ValueError(f"decimal must be '.' or ','; got {self.decimal!r}; pass one of them")
        if self.thousands is not None and (self.thousands not in GROUPS or self.thousands == self.decimal):
            raise ValueError(
                f"thousands must be one of {' '.join(map(repr, GROUPS))}, and not the decimal sign; got "
                f"{self.thousands!r}; pass one of them"
            )
        for name in ("header", "index", "transpose"):
            if getattr(self, name) not in (None, True, False):
                raise TypeError(f"{name} must be True or False; got {getattr(self, name)!r}; pass one of them")
        for name in ("na", "drop"):
            if not all(isinstance(word, str) for word in getattr(self, name)):
                raise TypeError(f"{name} must be a list of texts; got {getattr(self, name)!r}; pass e.g. ['-999']")


@dataclass(frozen=True, eq=False)
class Table:
    """A table that was read. frame: samples by features, with names where the file has them."""

    frame: pandas.DataFrame
    path: Path
    kind: str
    sample_names: bool
    feature_names: bool
    transposed: bool

    @property
    def n_missing(self) -> int:
        return int(np.isnan(self.frame.to_numpy()).sum())

    def facts(self) -> dict[str, Any]:
        """What was read, for a program."""
        n_samples, n_features = self.frame.shape
        return {
            "file": str(self.path),
            "format": self.kind,
            "n_samples": n_samples,
            "n_features": n_features,
            "samples_are": "columns" if self.transposed else "rows",
            "sample_names": self.sample_names,
            "feature_names": self.feature_names,
            "missing": self.n_missing,
            "missing_share": self.n_missing / self.frame.size,
        }


def read(path: str | PathLike[str], choices: Choices) -> Table:
    """The table in a file, with what there is to say about how it was read."""
    import pandas as pd

    file = Path(path)
    check_file(file)
    if file.stat().st_size == 0:
        raise ValueError(f"a table must hold numbers; {file.name} is empty; check how it was made")
    reader = READERS.get(format_of(file), read_text)
    parts = reader(file, choices)
    check_orientation(parts.corner, choices.transpose, file.name)
    frame = pd.DataFrame(parts.values, index=parts.rows, columns=parts.columns)
    turned = bool(choices.transpose)
    named = (parts.rows is not None, parts.columns is not None)
    samples, features = named[::-1] if turned else named
    return Table(frame.T if turned else frame, file, parts.kind, samples, features, turned)


def read_table(
    path: str | PathLike[str],
    *,
    sep: str | None = None,
    header: bool | None = None,
    index: bool | None = None,
    na: Sequence[str] | str = (),
    transpose: bool | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    drop: Sequence[str] | str = (),
    thousands: str | None = None,
    max_bytes: int | None = None,
) -> pandas.DataFrame:
    """Read a table made by others: CSV in its many spellings, Parquet, Feather, `.npy`, `.rds`, `.h5ad` or `.xlsx`.

    The form of a text file (separator, line of names, column of names, decimal commas, compression) is found from its
    first lines. What can be read in two ways is refused, with the setting that decides. Empty cells and `NA`, `NaN`,
    `null`, `.`, `?`, `-` and their like are missing; names that repeat are refused, and a sample may be called `NA`.

    Parameters
    ----------
    path : path
        The file.
    sep : str, optional
        What parts the fields of a line.
    header, index : bool, optional
        Whether the first line, the first column, holds names.
    na : str or list of str
        Further spellings of a missing entry, such as ``"-999"``.
    transpose : bool, optional
        True where the lines of the file are features and its columns samples.
    decimal : str, optional
        ``"."`` or ``","``.
    encoding : str, optional
        Of a text file; UTF-8 unless the file's first bytes say otherwise.
    drop : str or list of str
        Columns to leave out, by title, or by number from 1 where there are no titles.
    thousands : str, optional
        What parts thousands: ``","``, ``"."``, ``" "`` or ``"'"``. Found where a number leaves no doubt (1,234.5).
    max_bytes : int, optional
        What the table may take in memory, 8 bytes an entry, and what a compressed file may unpack to; by default 2 GB.
        A small file can hold a table that fills the memory, so the size is estimated before the table is made.

    Returns
    -------
    pandas.DataFrame
        (n_samples, n_features), NaN where an entry is missing; for `fit_vi` and `sample`.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> import sparsefactor as sf
    >>> file = Path(mkdtemp()) / "X.csv"
    >>> _ = file.write_text("id;height;weight\\nAda;1,71;NA\\nBob;1,80;75,5\\n")
    >>> sf.read_table(file).shape
    (2, 2)
    """
    choices = Choices(
        sep=sep,
        header=header,
        index=index,
        na=(na,) if isinstance(na, str) else tuple(na),
        transpose=transpose,
        decimal=decimal,
        encoding=encoding,
        drop=(drop,) if isinstance(drop, str) else tuple(drop),
        thousands=thousands,
        max_bytes=max_bytes,
    )
    return read(path, choices).frame
