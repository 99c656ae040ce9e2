"""Gene sets: read, matched to the features, and made into prior inclusion probabilities."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..checks import checked_count, checked_share

logger = logging.getLogger("sparsefactor")

GeneSets = Mapping[str, Iterable[str]] | str | PathLike[str]


def read_gene_sets(path: str | PathLike[str]) -> dict[str, list[str]]:
    """Read gene sets from a GMT file: each line has a name, a description and the genes, separated by tabs.

    Parameters
    ----------
    path : of the file

    Returns
    -------
    dict of name to genes

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sf.read_gene_sets("hallmark.gmt")  # doctest: +SKIP
    """
    sets: dict[str, list[str]] = {}
    if not Path(path).is_file():
        raise FileNotFoundError(f"gene sets must be in a GMT file; there is no {str(path)!r}; check the path")
    for number, line in enumerate(Path(path).read_text(encoding="utf-8-sig").splitlines(), start=1):
        if not line.strip():
            continue
        name, *rest = line.split("\t")
        genes = [gene.strip() for gene in rest[1:] if gene.strip()]
        if not genes:
            raise ValueError(
                f"a line of a GMT file must have a name, a description and genes, parted by tabs; line {number} of "
                f"{str(path)!r} has no genes; mend or delete it"
            )
        if name in sets:
            raise ValueError(f"names of gene sets must be unique; {name!r} is twice in {str(path)!r}; rename one")
        sets[name] = genes
    if not sets:
        raise ValueError(f"a GMT file must have at least one gene set; {str(path)!r} has none; check the file")
    return sets


def annotate(
    feature_names: Any,
    gene_sets: GeneSets,
    inside: float = 0.9,
    outside: float = 0.01,
    *,
    n_free: int = 0,
    free: float = 0.1,
    min_size: int = 3,
) -> pd.DataFrame:
    """Turn gene sets into prior inclusion probabilities: a factor per set, likely on its genes and unlikely elsewhere.

    Parameters
    ----------
    feature_names : names of the features of X, in their order
    gene_sets : dict of name to genes, or the path of a GMT file
    inside, outside : float
        Prior probability that a factor has a loading on a gene of its set, and on any other.
    n_free, free : int, float
        Number of factors without a set, for what the sets do not explain, and their inclusion probability.
    min_size : int
        Sets with fewer genes among the features are left out.

    Returns
    -------
    pandas.DataFrame (n_features, n_factors)
        Rows named as the features, columns as the sets: `Prior(inclusion=...)`.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> table = sf.annotate(["a", "b", "c", "d"], {"first": ["a", "b"], "last": ["c", "d"]}, min_size=2)
    >>> float(table.loc["a", "first"]), float(table.loc["a", "last"])
    (0.9, 0.01)
    """
    for name, value in (("inside", inside), ("outside", outside), ("free", free)):
        checked_share(name, value, "0.9 and 0.01")
    if outside >= inside:
        raise ValueError(f"inside must be larger than outside; got {inside} and {outside}; exchange them")
    n_free, min_size = checked_count("n_free", n_free, 0), checked_count("min_size", min_size)
    members = membership(feature_names, gene_sets, min_size)
    taken = [name for name in members.columns if name in {f"free {number}" for number in range(1, n_free + 1)}]
    if taken:
        raise ValueError(f"a gene set must not be called as a free factor is; {taken[0]!r} is; rename it")
    table = pd.DataFrame(np.where(members, inside, outside), index=members.index, columns=members.columns)
    for number in range(1, n_free + 1):
        table[f"free {number}"] = free
    return table


def membership(feature_names: Any, gene_sets: GeneSets, min_size: int) -> pd.DataFrame:
    """(n_features, n_sets) bool, of the sets with enough genes among the features."""
    names = [str(name) for name in feature_names]
    if len(set(names)) < len(names):
        raise ValueError("feature names must be unique; some occur more than once; rename or drop them")
    place = {name: at for at, name in enumerate(names)}
    sets = named_sets(gene_sets)
    columns: dict[str, NDArray[np.bool_]] = {}
    for name, genes in sets.items():
        known = [place[gene] for gene in set(genes) if gene in place]
        if len(known) >= min_size:
            column = np.zeros(len(names), dtype=bool)
            column[known] = True
            columns[name] = column
    if not columns:
        example = next(iter(next(iter(sets.values()))), "nothing")
        raise ValueError(
            f"gene sets must have features of the data; none of {len(sets)} has {min_size} or more; check that both "
            f"use the same names: features such as {names[0]!r}, genes such as {example!r}; or lower min_size"
        )
    if len(columns) < len(sets):
        logger.info("%d of %d gene sets have fewer than %d features", len(sets) - len(columns), len(sets), min_size)
    return pd.DataFrame(columns, index=pd.Index(names, name="feature"))


def named_sets(gene_sets: Any) -> dict[str, list[str]]:
    """Gene sets from wherever they come."""
    if isinstance(gene_sets, str | PathLike):
        return read_gene_sets(gene_sets)
    if not isinstance(gene_sets, Mapping) or not gene_sets:
        raise TypeError(
            f"gene_sets must be a dict of names to genes, or the path of a GMT file; got {gene_sets!r}; pass either"
        )
    loose = [name for name, genes in gene_sets.items() if isinstance(genes, str) or not isinstance(genes, Iterable)]
    if loose:
        raise TypeError(f"a gene set must be a list of names; {loose[0]!r} is not; wrap it in a list")
    return {str(name): [str(gene) for gene in genes] for name, genes in gene_sets.items()}
