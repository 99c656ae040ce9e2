"""read_table: a file made by others becomes a frame of samples by features, and what was read can be said."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..words import plural
from .csv import read_csv
from .formats import READERS, format_of
from .layout import find_columns
from .limits import MAX_BYTES, check_file
from .missing_codes import mask_codes, suspected_codes
from .names import listed
from .numeric import GROUPS
from .parsed import AmbiguousTableError, Parsed

if TYPE_CHECKING:
    import pandas

logger = logging.getLogger("sparsefactor")


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What the caller says about a file; None is for the reader to find out.

    few: whether one column of numbers is enough, as it is for covariates. features: those of a fit whose new samples
    are read; others are left out. drop_empty: leave out samples and features without any entry.
    """

    sep: str | None = None
    header: bool | None = None
    index: str | bool | None = None
    columns: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    skip: int = 0
    na: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    transpose: bool | None = None
    decimal: str | None = None
    thousands: str | None = None
    encoding: str | None = None
    max_bytes: int | None = None
    few: bool = False
    features: tuple[str, ...] | None = None
    drop_empty: bool = False

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
        if not isinstance(self.skip, int) or isinstance(self.skip, bool) or self.skip < 0:
            raise ValueError(f"skip must be a number of lines, 0 or more; got {self.skip!r}; pass e.g. 2")
        if self.sep is not None and (not isinstance(self.sep, str) or len(self.sep) != 1):
            raise ValueError(f"sep must be one character; got {self.sep!r}; pass e.g. ';' or a tab")
        if self.decimal not in (None, ".", ","):
            raise ValueError(f"decimal must be '.' or ','; got {self.decimal!r}; pass one of them")
        if self.thousands is not None and (self.thousands not in GROUPS or self.thousands == self.decimal):
            raise ValueError(
                f"thousands must be one of {' '.join(map(repr, GROUPS))}, and not the decimal sign; got "
                f"{self.thousands!r}; pass one of them"
            )
        for name in ("header", "transpose"):
            if getattr(self, name) not in (None, True, False):
                raise TypeError(f"{name} must be True or False; got {getattr(self, name)!r}; pass one of them")
        if self.index is not None and not isinstance(self.index, str | bool):
            raise TypeError(f"index must be a column's title, True or False; got {self.index!r}; pass one of them")
        for name in ("na", "drop", "columns", "keep"):
            if not all(isinstance(word, str) for word in getattr(self, name)):
                raise TypeError(f"{name} must be a list of texts; got {getattr(self, name)!r}; pass e.g. ['-999']")
        for word in self.keep:
            try:
                float(word)
            except ValueError:
                raise ValueError(f"keep must be numbers; got {word!r}; pass e.g. ['99']") from None


@dataclass(frozen=True, eq=False)
class Table:
    """A table that was read. frame: samples by features, with names where the file has them.

    samples_at, features_at: where these are among the rows and columns, or columns and rows, of what was parsed.
    """

    frame: pandas.DataFrame
    path: Path
    parsed: Parsed
    transposed: bool
    samples_at: NDArray[np.intp]
    features_at: NDArray[np.intp]
    notes: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return self.parsed.kind

    @property
    def sample_names(self) -> bool:
        """Whether the file names its samples."""
        return (self.parsed.columns if self.transposed else self.parsed.rows) is not None

    @property
    def feature_names(self) -> bool:
        return (self.parsed.rows if self.transposed else self.parsed.columns) is not None

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
            "index": self.parsed.index if self.parsed.rows is not None else None,
            "missing": self.n_missing,
            "missing_share": self.n_missing / self.frame.size,
            "notes": list(self.notes),
        }


def read(path: str | PathLike[str], choices: Choices) -> Table:
    """The table in a file, with what there is to say about how it was read."""
    import pandas as pd

    file = Path(path)
    check_file(file)
    if file.stat().st_size == 0:
        raise ValueError(f"a table must hold numbers; {file.name} is empty; check how it was made")
    parsed = READERS.get(format_of(file), read_csv)(file, choices)
    if not parsed.kept:
        parsed = _chosen(parsed, choices, file.name)
    mask_codes(parsed.values, choices.na)
    titles = parsed.columns or [str(j + 1) for j in parsed.kept]
    codes = suspected_codes(parsed.values, titles, choices.keep)
    questions = [*parsed.questions, *([f"in {file.name}, {codes}"] if codes else [])]
    if questions:
        raise AmbiguousTableError(". Also: ".join(questions))
    frame = pd.DataFrame(parsed.values, index=parsed.rows, columns=parsed.columns)
    for said in parsed.notes:
        logger.info("%s: %s", file.name, said)
    turned = bool(choices.transpose)
    frame = frame.T if turned else frame
    samples_at, features_at, notes = _used(frame, choices)
    frame = frame.iloc[samples_at, features_at]
    return Table(frame, file, parsed, turned, samples_at, features_at, (*parsed.notes, *notes))


def _chosen(parsed: Parsed, choices: Choices, file: str) -> Parsed:
    """The columns of a matrix, all of which are numbers, that the caller asks for."""
    width, titles = parsed.values.shape[1], parsed.columns or []
    wanted = find_columns(choices.columns, titles, width, "columns", file) if choices.columns else range(width)
    dropped = find_columns(choices.drop, titles, width, "drop", file, lenient=choices.features is not None)
    kept = [j for j in range(width) if j in wanted and j not in dropped]
    columns = [titles[j] for j in kept] if titles else None
    return replace(parsed, values=parsed.values[:, kept], columns=columns, kept=tuple(kept))


def _used(frame: pandas.DataFrame, choices: Choices) -> tuple[NDArray[np.intp], NDArray[np.intp], list[str]]:
    """The samples and features to be used, and what is said of the others."""
    samples, features = np.arange(frame.shape[0]), np.arange(frame.shape[1])
    notes = []
    names = list(map(str, frame.columns))
    known = set(choices.features or ())
    if known and known < set(names):
        features = np.array([j for j, name in enumerate(names) if name in known])
        others = [name for name in names if name not in known]
        notes.append(f"{plural(len(others), 'feature')} not in the fit left out: {listed(others)}")
    if choices.drop_empty:
        seen = ~np.isnan(frame.to_numpy()[:, features])
        for what, index, filled in (
            ("sample", frame.index, seen.any(axis=1)),
            ("feature", frame.columns, seen.any(axis=0)),
        ):
            if filled.any() and not filled.all() and not (known and what == "feature"):
                empty = [str(name) for name in index[~filled]]
                notes.append(f"{plural(len(empty), what)} without any entry left out: {listed(empty)}")
                if what == "sample":
                    samples = samples[filled]
                else:
                    features = features[filled]
    return samples, features, notes


def read_table(
    path: str | PathLike[str],
    *,
    sep: str | None = None,
    header: bool | None = None,
    index: str | bool | None = None,
    columns: Sequence[str] | str = (),
    drop: Sequence[str] | str = (),
    skip: int = 0,
    na: Sequence[str] | str = (),
    keep: Sequence[str] | str = (),
    transpose: bool | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
    encoding: str | None = None,
    max_bytes: int | None = None,
) -> pandas.DataFrame:
    """Read a table made by others: CSV and TSV in their many dialects, Excel, Parquet, Feather, .npy, .rds or .h5ad.

    The form of a text file (separator, header, column of names, decimal commas, compression) is found from its first
    lines. What can be read in two ways is refused, with the setting that decides. Empty cells and `NA`, `NaN`, `null`,
    `.`, `?`, `-` and their like are missing. The first column holds names of samples if it is untitled, or titled
    `id`, `name`, `subject`, `sample` or the like, and its values are unique.

    Parameters
    ----------
    path : path
        The file.
    sep : str, optional
        Field separator.
    header : bool, optional
        Whether the first line holds the titles of columns.
    index : str or bool, optional
        Title of the column that names the rows; True for the first, False for none.
    columns, drop : str or list of str
        Columns to be used, and to be left out: titles, ranges of titles such as ``"A1:O5"``, or numbers from 1 where
        there are no titles.
    skip : int
        Lines before the header.
    na : str or list of str
        Further spellings of a missing entry, such as ``"-999"``.
    keep : str or list of str
        Numbers such as ``"99"`` that look like codes of a missing entry and are none.
    transpose : bool, optional
        True where the rows of the file are features and its columns samples.
    decimal : str, optional
        ``"."`` or ``","``.
    thousands : str, optional
        Thousands separator: ``","``, ``"."``, ``" "`` or ``"'"``. Found where a number leaves no doubt (1,234.5).
    encoding : str, optional
        Of a text file; UTF-8 unless the file's first bytes say otherwise.
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
    words: dict[str, Sequence[str] | str] = {"columns": columns, "drop": drop, "na": na, "keep": keep}
    lists: dict[str, Any] = {
        name: (given,) if isinstance(given, str) else tuple(given) for name, given in words.items()
    }
    choices = Choices(
        sep=sep,
        header=header,
        index=index,
        skip=skip,
        transpose=transpose,
        decimal=decimal,
        thousands=thousands,
        encoding=encoding,
        max_bytes=max_bytes,
        **lists,
    )
    return read(path, choices).frame
