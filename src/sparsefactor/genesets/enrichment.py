"""Are a factor's features those of a known set? A test of overlap and one of ranks, for every factor and set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import false_discovery_control, hypergeom, norm, rankdata

from ..checks import checked_count
from ..posterior import MCMCPosterior, VIPosterior
from .annotation import GeneSets, membership

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Enrichment:
    """Every factor tested against every set; `enrich` returns it.

    Attributes
    ----------
    table : pandas.DataFrame
        factor (from 1), set, size (features of the set), found (features of the factor), overlap, expected (by
        chance), p_overlap, fdr_overlap, p_rank, fdr_rank and features (those in the overlap, surest first); the
        clearest sets of a factor first.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=60, inclusion=[0.4], snr=4, seed=0)
    >>> p = sf.fit_vi(sim.X, sf.Prior(n_factors=1), n_trials=2)
    >>> genes = [i for i in range(40) if sim.inclusion[i, 0]]
    >>> list(sf.enrich(p, {"true": genes, "other": range(10)}).significant().set)
    ['true']
    """

    table: pd.DataFrame

    def significant(self, fdr: float = 0.05) -> pd.DataFrame:
        """The rows that are significant by either test.

        Parameters
        ----------
        fdr : float
            False discovery rate.

        Returns
        -------
        pandas.DataFrame
        """
        return self.table[(self.table["fdr_overlap"] <= fdr) | (self.table["fdr_rank"] <= fdr)]

    def plot(self, fdr: float = 0.05, most: int = 30) -> Figure:
        """Sets by factors: a dot's area is the share of the set in the factor, its colour how sure the overlap is.

        Parameters
        ----------
        fdr : float
            A set is shown if it is significant for a factor at this false discovery rate.
        most : int
            Maximum number of sets shown.

        Returns
        -------
        matplotlib.figure.Figure
        """
        from .figure import enrichment_figure

        return enrichment_figure(self.table, fdr, most)


def enrich(p: VIPosterior | MCMCPosterior, gene_sets: GeneSets, *, fdr: float = 0.05, min_size: int = 3) -> Enrichment:
    """Test each factor's features against gene sets.

    Two tests: whether the factor's features (`discoveries`) overlap with a set more than by chance (hypergeometric;
    the background is all features of the fit), and whether the set's features have larger absolute loadings than
    others (Wilcoxon rank-sum, which needs no threshold). False discovery rates (Benjamini and Hochberg) are over all
    factors that are not empty and all sets.

    Parameters
    ----------
    p : posterior
    gene_sets : dict of name to genes, or the path of a GMT file
    fdr : float
        At which a feature counts as one of the factor's.
    min_size : int
        Sets with fewer genes among the features are left out.

    Returns
    -------
    Enrichment

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=60, inclusion=[0.4], snr=4, seed=0)
    >>> p = sf.fit_vi(sim.X, sf.Prior(n_factors=1), n_trials=2)
    >>> genes = [i for i in range(40) if sim.inclusion[i, 0]]
    >>> sf.enrich(p, {"true": genes, "other": range(10)}).table.set[0]
    'true'
    """
    members = membership(p.feature_names, gene_sets, checked_count("min_size", min_size))
    inside = members.to_numpy()  # (G, S)
    factors = np.flatnonzero(~p.empty)
    found = p.discoveries(fdr)
    features = members.index.to_numpy()
    place = {name: at for at, name in enumerate(features)}
    frames = []
    for k in factors:
        own = [place[str(name)] for name in found.loc[found["factor"] == k + 1, "feature"]]
        size, overlap = inside.sum(axis=0), inside[own].sum(axis=0)
        frames.append(
            pd.DataFrame(
                {
                    "factor": k + 1,
                    "set": members.columns,
                    "size": size,
                    "found": len(own),
                    "overlap": overlap,
                    "expected": size * len(own) / len(inside),
                    "p_overlap": hypergeom.sf(overlap - 1, len(inside), size, len(own)),
                    "p_rank": larger_ranks(np.abs(p.loadings_mean[:, k]), inside),
                    "features": [[str(features[i]) for i in own if column[i]] for column in inside.T],
                }
            )
        )
    columns = ["factor", "set", "size", "found", "overlap", "expected"]
    columns += ["p_overlap", "fdr_overlap", "p_rank", "fdr_rank", "features"]
    if not frames:  # no factor holds anything
        return Enrichment(pd.DataFrame({name: [] for name in columns}))
    table = pd.concat(frames, ignore_index=True)
    for name in ("overlap", "rank"):
        table[f"fdr_{name}"] = false_discovery_control(table[f"p_{name}"])
    return Enrichment(table.sort_values(["factor", "p_overlap", "p_rank"], ignore_index=True)[columns])


def larger_ranks(values: Array, inside: NDArray[np.bool_]) -> Array:
    """(S,) one-sided p of the rank-sum test that values inside a set are larger; normal, corrected for ties.

    values: (G,); inside: (G, S).
    """
    ranks = rankdata(values)
    total, n = len(values), inside.sum(axis=0)
    m = total - n
    U = ranks @ inside - n * (n + 1) / 2
    _, ties = np.unique(values, return_counts=True)
    variance = n * m / 12 * (total + 1 - np.sum(ties**3 - ties) / (total * max(total - 1, 1)))
    flat = (variance <= 0) | (m == 0)  # a set of all features, or values all alike, say nothing
    z = (U - n * m / 2 - 0.5) / np.sqrt(np.where(flat, 1.0, variance))
    return np.asarray(np.where(flat, 1.0, norm.sf(z)))
