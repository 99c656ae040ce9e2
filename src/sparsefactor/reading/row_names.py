"""The column that names the rows of a table, and whether the rows are features or samples."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from .names import beginning, listed, shown
from .numeric import NumberFormat, are_whole, in_order

# Titles of a first column, as `_word` leaves them: of features, which then lie in rows, and of samples.
FEATURE = re.compile(
    "asv|cpg|(ensembl|entrez)(gene)?|feature|gene(symbol)?|hugosymbol|idref|item|marker|metabolite|mirna|otu|"
    "peptide|probe(set)?|protein|snp|symbol|target|taxon|transcript|uniprot|variable|variant"
)
LABEL = re.compile(
    "|barcode|case|cell|code|index|key|no|nr|number|ob|observation|participant|patient|person|record|respondent|response|"
    "row|sample|student|subj|subject|vp"
)
UNTITLED = re.compile(r"(|unnamed: ?0|\.\.\.1|x)", re.IGNORECASE)  # as R, pandas and readr write names of rows
FEATURE_NAME = re.compile(  # gene1, TP53, Cd8a, YAL001C, ENSG00000141510, 1007_s_at; not S12, p003, subject7
    r"(?i:gene|feature|probe|protein|transcript|snp|cpg|metabolite|otu|asv)[ _.-]?\w+|"
    r"(?![A-Za-z][_.-]?\d+$|(?i:row|obs|case|sample|sub|subj|subject|pat|patient|person|participant|id|vp)[ _.-]?\d+$)"
    r"(?=\S*[A-Za-z])(?=\S*\d|[A-Z-]{2,}$)[\w.:@/|-]{2,25}",
)
TALL, MANY = 3, 100  # times as many rows as columns, and rows, where features may lie in rows
MANY_IN_ORDER = 5  # whole numbers that only rise or fall, of which the first column may be an ID


def names_rows(
    title: str | None, column: Sequence[str], beside: Sequence[str], numbers: NumberFormat, file: str, number: int
) -> tuple[bool, str]:
    """Whether a first column names the rows, and the question where it may. beside: the next column.

    title: None without a header. number: of the column, from 1.
    """
    decimals = any(not are_whole([cell]) for cell in beside if numbers.is_number(cell))
    found = _names_in(title, column, numbers, decimals)
    place = title or str(number)
    if found == "unclear":
        what = f"{shown(title)}: {beginning(column)}" if title else beginning(column)
        return False, (
            f"Is the first column of {file} ({what}) an ID or data? Pass index={place!r} if it is an ID, index=False "
            "if it is data"
        )
    if found == "repeated":
        again = next(cell for i, cell in enumerate(column) if cell in column[:i])
        return False, (
            f"names must not repeat; the first column of {file} holds {shown(again)!r} more than once; make its names "
            f"unique, or pass drop={[place]} to leave it out"
        )
    return found == "names", ""


def _names_in(title: str | None, column: Sequence[str], numbers: NumberFormat, decimals: bool) -> str:
    """What a first column holds: names, data, names that are repeated, or what may be names or data.

    title: None without a header. decimals: whether its neighbour holds some.
    """
    untitled = title is not None and UNTITLED.fullmatch(title) is not None
    label = title is not None and (is_label(title) or FEATURE.fullmatch(_word(title)) is not None)
    unique = len(set(column)) == len(column)
    texts = sum(map(numbers.is_text, column))
    if texts and (label or untitled or 2 * texts > sum(map(numbers.is_number, column))):
        return "names" if unique else "repeated" if label or untitled else "data"
    if texts:
        return "data"
    whole = are_whole(column) and unique
    values = [int(cell) for cell in column] if whole else []
    steps = {later - value for value, later in pairwise(values)}
    counts = len(values) > 2 and (steps == {1} or (len(values) > MANY_IN_ORDER and in_order(values)))
    if title is not None and title.lower() == "x" and not counts:
        untitled = False
    if whole and (label or untitled):
        return "names"
    if untitled or counts or (title is None and whole and decimals):
        return "unclear"
    return "unclear" if label and not all(map(numbers.is_number, column)) else "data"


def orientation_question(title: str, names: Sequence[str], titles: Sequence[str], n_rows: int, file: str) -> str:
    """A question where rows are called features, or are many more than columns, look like genes and have no title."""
    if FEATURE.fullmatch(_word(title)):
        return (
            f"Are the rows of {file} ({shown(title)}: {beginning(names)}) features or samples? Pass transpose=True if "
            "they are features, transpose=False if they are samples"
        )
    tall = n_rows >= max(MANY, TALL * len(titles))
    like_genes = sum(FEATURE_NAME.fullmatch(name) is not None for name in names)
    if tall and UNTITLED.fullmatch(title) and 2 * like_genes > len(names):
        return (
            f"{file} has many more rows ({beginning(names)}) than columns ({listed(titles)}). Are its rows features, "
            "such as genes? Pass transpose=True if so, transpose=False if they are samples"
        )
    return ""


def is_label(title: str) -> bool:
    return LABEL.fullmatch(_word(title)) is not None


def _word(title: str) -> str:
    """A title without case, marks, plural, and "id", "name" or "number" at its end; "id" itself becomes empty."""
    word = re.sub(r"[\s_.-]", "", title.lower()).removesuffix("s")
    for ending in ("id", "name", "number", "nr", "no"):
        word = word.removesuffix(ending) if word != ending or ending in ("id", "name") else word
    return word
