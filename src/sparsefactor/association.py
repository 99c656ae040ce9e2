"""Factors against what else is known of the samples: correlations and group differences of uncertain scores.

A column becomes an orthonormal basis Q of its q contrasts: a number has one, g groups have g - 1. Over the posterior of
the scores f of a factor, Q'f has a mean and a variance, which adds to that of sampling. They are pooled as for multiple
imputations (Rubin's rules; for several contrasts the test of Li, Raghunathan and Rubin). Under q the moments are exact;
with draws they are those of the draws.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import f as f_law
from scipy.stats import false_discovery_control
from scipy.stats import t as student

from .design import matching_rows
from .names import listed, shown
from .questions.rows import each_draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .posterior import MCMCPosterior, VIPosterior

Array = NDArray[np.float64]

DRAWS = 400  # about this many, evenly spaced
FEWEST = 4  # samples with a value
INTERVAL = 0.95
MOST_NAMED = 5  # columns that a warning names
COLUMNS = ["factor", "column", "kind", "effect", "lower", "upper", "n", "p", "fdr", "means"]


@dataclass(frozen=True, eq=False)
class Association:
    """Every factor tested against every column; `p.associate` returns it.

    Attributes
    ----------
    table : pandas.DataFrame
        A row per factor and column, the clearest first: factor (from 1); column; kind ("correlation" or "groups");
        effect (the correlation, or the correlation ratio eta of groups, from 0 to 1); lower and upper (the 95 %
        interval of a correlation); n (samples with a value); p; fdr (Benjamini and Hochberg, over all rows); and means
        (the mean score of each group, highest first).

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5], snr=4, seed=0)
    >>> found = sf.fit_vi(sim.X, n_factors=1).associate({"score": sim.activations[:, 0]})
    >>> bool(abs(found.table.effect[0]) > 0.8)
    True
    """

    table: pd.DataFrame

    def significant(self, fdr: float = 0.05) -> pd.DataFrame:
        """The rows at this false discovery rate.

        Parameters
        ----------
        fdr : float

        Returns
        -------
        pandas.DataFrame
        """
        return self.table[self.table["fdr"] <= fdr]

    def plot(self, fdr: float = 0.05, *, ax: Axes | None = None) -> Axes:
        """A heatmap of factors by columns: colour is the effect, a dot marks associations at this false discovery rate.

        Parameters
        ----------
        fdr : float
        ax : matplotlib Axes, optional

        Returns
        -------
        matplotlib Axes
        """
        from .plot.association import association_heatmap

        return association_heatmap(self.table, fdr, ax)


def associate(p: VIPosterior | MCMCPosterior, metadata: Any) -> Association:
    """See `Posterior.associate`."""
    frame = as_frame(metadata, p.sample_names)
    factors = np.flatnonzero(~p.empty)
    rows: list[dict[str, Any]] = []
    unusable = []
    for name in frame.columns:
        column = Column.of(frame[name])
        if column is None:
            unusable.append(shown(name))
            continue
        tests = zip(factors, *pooled(p, factors, column), strict=True)
        rows += [{"factor": int(k) + 1, "column": str(name), **column.describe(p, k, *found)} for k, *found in tests]
    if unusable:
        more = f" and {len(unusable) - MOST_NAMED} more" if len(unusable) > MOST_NAMED else ""
        names = ", ".join(unusable[:MOST_NAMED]) + more if more else listed(unusable)
        warnings.warn(
            f"columns must vary, be finite, and have two samples a group on average; {names} left out", stacklevel=3
        )
    table = pd.DataFrame(rows, columns=COLUMNS)
    if len(table):
        table["fdr"] = false_discovery_control(table["p"])
        table = table.sort_values(["p", "factor"], ignore_index=True)
    return Association(table)


def as_frame(metadata: Any, sample_names: NDArray[Any]) -> pd.DataFrame:
    """Columns with a row for each sample of the fit, in its order; by name where both have names."""
    if hasattr(metadata, "to_dict") and hasattr(metadata, "get_columns"):  # polars
        metadata = metadata.to_dict(as_series=False)
    frame = metadata.to_frame() if isinstance(metadata, pd.Series) else metadata
    if not isinstance(frame, pd.DataFrame):
        try:
            frame = pd.DataFrame(metadata)
        except ValueError as problem:
            raise ValueError(
                f"metadata must be a table of columns; got {type(metadata).__name__} ({problem})"
            ) from None
    if not frame.shape[1]:
        raise ValueError("metadata must have at least one column; got none; pass a frame with a row for each sample")
    rows = matching_rows(frame.index, sample_names, "metadata")
    frame = frame if rows is None else frame.iloc[rows]
    if len(frame) != len(sample_names):
        raise ValueError(
            f"metadata must have a row for each of the {len(sample_names)} samples; got {len(frame)}; select them"
        )
    return frame.reset_index(drop=True)


@dataclass(frozen=True)
class Column:
    """A column as contrasts."""

    seen: NDArray[np.bool_]  # (n_samples,) where it has a value
    basis: Array  # (n, q) orthonormal contrasts of these samples
    labels: NDArray[Any] | None  # (n,) their groups; None: numbers

    @staticmethod
    def of(values: pd.Series[Any]) -> Column | None:
        """None for a column that cannot be tested: constant, infinite, too few values, or groups of one sample."""
        seen = values.notna().to_numpy()
        known = values[seen]
        n = len(known)
        if n < FEWEST:
            return None
        if pd.api.types.is_datetime64_any_dtype(known):
            known = known.astype("int64")
        if pd.api.types.is_numeric_dtype(known) and not pd.api.types.is_bool_dtype(known):
            numbers = known.to_numpy(dtype=np.float64)
            if not np.isfinite(numbers).all():
                return None
            apart = numbers - numbers.mean()
            size = np.sqrt(np.sum(apart**2))
            if size <= 1e-12 * np.abs(numbers).max():
                return None
            return Column(seen, (apart / size)[:, None], None)
        labels, group = np.unique(known.astype(str).to_numpy(dtype=str), return_inverse=True)
        if len(labels) < 2 or 2 * len(labels) > n:
            return None
        dummies = np.eye(len(labels))[group]
        basis, _ = np.linalg.qr((dummies - dummies.mean(axis=0))[:, 1:])
        return Column(seen, basis, labels[group])

    def describe(self, p: Any, k: int, effect: float, lower: float, upper: float, probability: float) -> dict[str, Any]:
        """A row of the table."""
        groups, means = self.labels is not None, ""
        if self.labels is not None:
            score = pd.Series(p.activations_mean[self.seen, k]).groupby(self.labels).mean()
            ordered = score.sort_values(ascending=False, kind="stable")
            means = ", ".join(f"{shown(name)} {mean:.2f}" for name, mean in ordered.items())
        return {
            "kind": "groups" if groups else "correlation",
            "effect": effect,
            "lower": np.nan if groups else lower,
            "upper": np.nan if groups else upper,
            "n": int(self.seen.sum()),
            "p": probability,
            "means": means,
        }


def pooled(p: VIPosterior | MCMCPosterior, factors: NDArray[np.intp], column: Column) -> tuple[Array, ...]:
    """(n_factors,) effects, ends of their intervals, and p, over the posterior of the scores."""
    Q, (n, q) = column.basis, column.basis.shape
    estimate, between, residual, draws = moments(p, factors, column)
    df = n - q - 1.0
    within = residual / df
    explained = np.sum(estimate**2, axis=0)
    share = (1.0 + 1.0 / draws) * between / np.where(within > 0, q * within, 1.0)  # of variance, from the posterior
    lost = share / (1.0 + share)
    observed = (df + 1.0) / (df + 3.0) * df * (1.0 - lost)
    # Barnard and Rubin: with many draws the degrees of freedom are those of the complete data, less what is lost.
    freedom = np.where(share > 0, 1.0 / (1.0 / observed + lost**2 / max(draws - 1.0, 1.0)), df)
    F = explained / np.where(within > 0, q * within * (1.0 + share), 1.0)
    probability = np.where(within > 0, f_law.sf(F, q, freedom), 0.0)
    effect = np.sqrt(explained / (explained + residual))
    if column.labels is not None:
        return effect, np.full_like(effect, np.nan), np.full_like(effect, np.nan), probability
    effect = effect * np.sign((Q.T @ p.activations_mean[np.ix_(column.seen, factors)])[0])
    z = np.arctanh(np.clip(effect, -1 + 1e-12, 1 - 1e-12))
    half = student.ppf(0.5 + INTERVAL / 2, freedom) * np.sqrt((1.0 + share) / max(n - 3.0, 1.0))
    return effect, np.tanh(z - half), np.tanh(z + half), probability


def moments(
    p: VIPosterior | MCMCPosterior, factors: NDArray[np.intp], column: Column
) -> tuple[Array, Array, Array, float]:
    """Over the posterior of the scores f: (q, K) mean of Q'f, (K,) sum of its variances, (K,) residual; and draws."""
    Q, seen = column.basis, column.seen
    leverage = np.sum(Q**2, axis=1)
    if not hasattr(p, "draws"):
        mean, variance = p.activations_mean[np.ix_(seen, factors)], p.activations_sd[np.ix_(seen, factors)] ** 2
        estimate = Q.T @ mean
        left = np.sum((mean - mean.mean(axis=0) - Q @ estimate) ** 2, axis=0)
        free = 1.0 - 1.0 / len(mean) - leverage
        return estimate, leverage @ variance, left + free @ variance, np.inf
    found = [(weight, Q.T @ F, _residual(F, Q)) for weight, F in _scores(p, seen, factors)]
    weights = np.array([weight for weight, _, _ in found])
    weights /= weights.sum()
    each = np.array([estimate for _, estimate, _ in found])
    estimate = np.einsum("m,mqk->qk", weights, each)
    between = np.einsum("m,mqk->k", weights, (each - estimate) ** 2)
    return estimate, between, weights @ np.array([left for _, _, left in found]), float(len(found))


def _scores(p: Any, seen: NDArray[np.bool_], factors: NDArray[np.intp]) -> Iterator[tuple[float, Array]]:
    for draw in each_draw(p, DRAWS):
        yield draw.weight, draw.F[np.ix_(seen, factors)]


def _residual(F: Array, Q: Array) -> Array:
    return np.asarray(np.sum((F - F.mean(axis=0) - Q @ (Q.T @ F)) ** 2, axis=0))
