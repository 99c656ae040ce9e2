"""The prior, checked once (math.md, section 1)."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from html import escape
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import checked_choice, checked_count, with_name_hints
from ..computed import computed
from ..data import Data
from ..groups import PartOfGroups, checked_groups, distinct_labels, matched, numbered
from .beta import Beta, learnt_default
from .checks import (
    check_positive,
    checked_factor_names,
    checked_inclusion,
    checked_rates,
    column_names,
    is_vector,
    row_names,
)
from .units import in_units_of, slab_default

Noise = Literal["feature", "shared", "sample"]
Correlation = Literal["learnt", "none"]
MOST_SHOWN = 12  # numbers of an inclusion prior that its repr lists
NOISE_SHAPE = 1.0
PAPER_RATE = 1e-3
CORRELATION_SAMPLES = 10  # the prior on the factors' correlations is worth this many samples of uncorrelated factors


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Prior:
    """The prior of the sparse factor model (math.md, equations 1.1 to 1.6).

    Parameters
    ----------
    n_factors : int, optional
        Maximum number of factors; may be left out if `inclusion` is a vector or a matrix.
    inclusion : float, array, frame or Beta
        Prior probability that a loading is non-zero: a scalar, one per factor (n_factors,), one per feature and
        factor (n_features, n_factors) for known sets, or `Beta(a, b)` to learn it per factor. The default is
        Beta(1, 1), and Beta(0.1, 1) with groups, so that a factor may be absent from a group. The rows of a data frame
        must be named as the features of X, in their order.
    n_modules : int
        Maximum number of modules: unknown groups of features, each with its own inclusion probabilities (1.8). Needs a
        Beta. With one module, all features are alike.
    groups : (n_features,) labels, dict or Series, optional
        Known groups of features (views): each has its own slab precision and, if it is learnt, inclusion probability
        for every factor (1.10). By position, or by feature names. One group is the same as none.
    factor_names : (n_factors,) names, optional
        Names of known factors, that is, of columns of inclusion; by default those of inclusion if it is a frame, as
        `annotate` returns it. Where inclusion is the same for all factors, they get the names in the order of their
        variance.
    noise : "feature", "shared" or "sample"
        One noise precision per feature (the paper's), one in all, or one per sample. The latter two take features to
        be equally noisy: fit with scale=True unless they are.
    factor_correlation : "learnt" or "none"
        Whether the activations are f ~ N(0, Phi) with a correlation matrix Phi that is learnt, or uncorrelated (as in
        the paper). Learnt correlations are shrunk towards zero by a prior that is worth ten samples.
    noise_shape, noise_rate, loading_shape, loading_rate : float, optional
        Shapes and rates of the gamma priors on noise and slab precisions. By default rates are in units of the data,
        so that results do not depend on these: noise_rate is 0.02 times the variance of the feature (or sample, or
        matrix), loading_rate 0.1 times (0.001 if inclusion is given) the mean square of all entries, and loading_shape
        is 1 (or 0.001). A number is used as it is; noise_rate may also be one number per feature (or sample).
    settled : bool
        Whether the rates are final numbers; set by the package itself.
    parallel_analysis : int, optional
        The number of factors that parallel analysis chose, where `fit_vi` or `sample` were given none; set by the
        package itself.

    See Also
    --------
    Prior.paper : the paper's prior, with all four hyperparameters at a literal 0.001.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sf.Prior(n_factors=26)  # inclusion is learnt
    Prior(n_factors=26, inclusion=Beta(a=1.0, b=1.0))
    >>> sf.Prior(inclusion=[0.1] * 5 + [0.9]).n_factors  # five sparse factors and a dense one
    6
    """

    n_factors: int | None = None
    inclusion: Any = None
    n_modules: int = 1
    groups: Any = None
    factor_names: Any = None
    noise: Noise = "feature"
    factor_correlation: Correlation = "learnt"
    noise_shape: float = NOISE_SHAPE
    noise_rate: Any = None
    loading_shape: Any = None
    loading_rate: Any = None
    settled: bool = field(default=False, repr=False)  # whether the rates are numbers for `Data.Y`: see in_units_of
    parallel_analysis: int | None = field(default=None, repr=False)  # n_factors, where the data chose it

    @classmethod
    def paper(cls, **settings: Any) -> Prior:
        """The paper's prior: inclusion 0.1 unless given, and gamma priors of shape and rate 0.001 in any units.

        Parameters
        ----------
        **settings
            Of `Prior`.

        Returns
        -------
        Prior

        Examples
        --------
        >>> import sparsefactor as sf
        >>> sf.Prior.paper(n_factors=6).noise_rate
        0.001
        """
        vague = dict.fromkeys(("noise_shape", "noise_rate", "loading_shape", "loading_rate"), PAPER_RATE)
        return cls(**{"inclusion": 0.1, "factor_correlation": "none", **vague, **settings})

    def __post_init__(self) -> None:
        if self.inclusion is None:
            object.__setattr__(self, "inclusion", learnt_default(several=len(distinct_labels(self.groups)) > 1))
        if self.loading_shape is None:
            object.__setattr__(self, "loading_shape", slab_default(self.inclusion)[0])
        for name in ("noise_shape", "loading_shape"):
            check_positive(name, getattr(self, name))
        for name in ("noise_rate", "loading_rate"):
            value = getattr(self, name)
            if value is None or self.settled:
                continue
            if name == "noise_rate" and is_vector(value):
                object.__setattr__(self, name, checked_rates(value))
            else:
                check_positive(name, value)
        if not isinstance(self.noise, str) or self.noise not in get_args(Noise):
            raise ValueError(f"noise must be one of {get_args(Noise)}; got {self.noise!r}; choose one of them")
        checked_choice("factor_correlation", self.factor_correlation, get_args(Correlation))
        object.__setattr__(self, "n_modules", checked_count("n_modules", self.n_modules))
        if self.n_modules > 1 and not isinstance(self.inclusion, Beta):
            raise ValueError(
                f"modules have inclusion probabilities to be learnt; got n_modules={self.n_modules} with inclusion "
                "given; pass inclusion=Beta(1, 1), or leave n_modules out"
            )
        object.__setattr__(self, "groups", checked_groups(self.groups))
        if self.n_modules > 1 and self.groups is not None:
            raise ValueError(
                f"features are in known groups or in unknown modules, not in both; got groups and n_modules="
                f"{self.n_modules}; leave one of them out"
            )
        object.__setattr__(self, "_row_names", row_names(self.inclusion))
        names = self.factor_names if self.factor_names is not None else column_names(self.inclusion)
        if not isinstance(self.inclusion, Beta):
            object.__setattr__(self, "inclusion", checked_inclusion(self.inclusion))
        object.__setattr__(self, "n_factors", self._resolve_n_factors())
        object.__setattr__(self, "factor_names", None if names is None else checked_factor_names(names, self.K))

    def _resolve_n_factors(self) -> int:
        given = self.n_factors
        implied = None if self.learns_inclusion or self.inclusion.ndim == 0 else int(self.inclusion.shape[-1])
        if given is None:
            if implied is None:
                raise ValueError(
                    "n_factors must be given when inclusion is a scalar or a Beta; got None; pass n_factors=..."
                )
            return implied
        given = checked_count("n_factors", given)
        if implied is not None and implied != given:
            raise ValueError(
                f"n_factors must equal the length of inclusion's last axis; got {given} and {implied}; "
                "leave n_factors out or make them agree"
            )
        return given

    def __repr__(self) -> str:
        inclusion = self.inclusion
        if not isinstance(inclusion, Beta):
            sizes = " x ".join(map(str, inclusion.shape))
            inclusion = f"{inclusion.tolist()}" if inclusion.size <= MOST_SHOWN else f"<{sizes} numbers>"
        others = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("n_factors", "inclusion")}
        defaults = {f.name: f.default for f in fields(self)}
        words = [f"n_factors={self.n_factors}", f"inclusion={inclusion}"]
        for name, value in others.items():
            if name == "factor_names":
                continue
            if name == "groups":
                words += [] if value is None else [f"groups=<{len(value)} labels>"]
            elif isinstance(value, np.ndarray):
                words.append(f"{name}=<{value.size} numbers>")
            elif value != defaults[name] and (name != "loading_shape" or value != slab_default(self.inclusion)[0]):
                words.append(f"{name}={value!r}")
        return f"Prior({', '.join(words)})"

    def _repr_html_(self) -> str:
        return f"<code>{escape(repr(self))}</code>"

    @property
    def K(self) -> int:
        """The number of factors."""
        assert self.n_factors is not None
        return self.n_factors

    @property
    def correlated(self) -> bool:
        """Whether the factors' correlations are learnt."""
        return self.factor_correlation == "learnt" and self.K > 1

    @property
    def correlation_df(self) -> float:
        """Degrees of freedom of the prior on the factors' correlations (1.13); 0 where factors are uncorrelated."""
        return float(self.K + 1 + CORRELATION_SAMPLES) if self.correlated else 0.0

    @property
    def learns_inclusion(self) -> bool:
        """Whether `inclusion` is a Beta."""
        return isinstance(self.inclusion, Beta)

    @computed
    def _numbered(self) -> tuple[NDArray[np.str_], NDArray[np.int64]]:
        if self.groups is None:
            return np.zeros(0, dtype=str), np.zeros(0, np.int64)
        if isinstance(self.groups, dict):
            raise ValueError(
                "groups by feature name belong to features only once these are known; there are none yet; pass labels "
                "by position, or look at the prior of a fit"
            )
        return numbered(self.groups)

    @property
    def group_names(self) -> NDArray[np.str_]:
        """(n_groups,) the labels of known groups in the order of the features; (0,) where there are none."""
        return self._numbered[0]

    @property
    def group_index(self) -> NDArray[np.int64]:
        """(n_features,) which group each feature is in; (0,) where there are none."""
        return self._numbered[1]

    @property
    def grouped(self) -> bool:
        """Whether there is more than one group: what belongs to groups then has shape (K, V), else (K,)."""
        return len(self.group_names) > 1

    @property
    def group_sizes(self) -> Any:
        """(V,) features in each group."""
        if isinstance(self.groups, PartOfGroups):
            return self.groups.sizes
        return np.bincount(self.group_index).astype(np.float64)

    def by_row(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """(1 or G, K): each row's own of values (K,) or (K, V)."""
        return values[None, :] if values.ndim == 1 else values.T[self.group_index]

    def sums(self, values: NDArray[Any], rows: slice = slice(None)) -> NDArray[np.float64]:
        """(K,), or (K, V) by group: sums over the rows of values (G, K), or some of them."""
        if not self.grouped:
            return np.asarray(values[rows].sum(axis=0), dtype=np.float64)
        out = np.zeros((len(self.group_names), values.shape[1]))
        np.add.at(out, self.group_index[rows], values[rows])
        return np.ascontiguousarray(out.T)

    def inclusion_matrix(self) -> NDArray[np.float64]:
        """(1, K) or (G, K): the prior (mean) probability of inclusion."""
        if isinstance(self.inclusion, Beta):
            return np.full((1, self.K), self.inclusion.a / (self.inclusion.a + self.inclusion.b))
        if self.inclusion.ndim == 2:
            return self.inclusion
        return np.broadcast_to(self.inclusion, (1, self.K)).copy()

    def factor_groups(self) -> NDArray[np.intp]:
        """(K,) labels: two factors are exchangeable a priori when they share a label."""
        _, labels = np.unique(self.inclusion_matrix(), axis=1, return_inverse=True)
        return np.asarray(labels, dtype=np.intp).reshape(-1)

    def take(self, order: ArrayLike) -> Prior:
        """The prior of the factors in `order`: a subset, or another arrangement."""
        chosen = np.asarray(order, dtype=np.intp)
        inclusion = self.inclusion
        if not isinstance(inclusion, Beta) and inclusion.ndim:
            inclusion = inclusion[..., chosen]
        names = None if self.factor_names is None else [self.factor_names[k] for k in chosen]
        return replace(self, n_factors=len(chosen), inclusion=inclusion, factor_names=names)

    def part(self, rows: slice) -> Prior:
        """The prior of some of the features, its rates settled; groups and their sizes are those of all features."""
        inclusion, rate = self.inclusion, self.noise_rate
        if not isinstance(inclusion, Beta) and inclusion.ndim == 2:
            inclusion = inclusion[rows]
        if self.noise == "feature" and np.ndim(rate) == 1:
            rate = rate[rows]
        groups: Any = self.groups
        if groups is not None:
            groups = PartOfGroups(self.group_names, self.group_index[rows], self.group_sizes)
        return replace(self, inclusion=inclusion, noise_rate=rate, groups=groups)

    def matched_to(self, data: Data) -> Prior:
        """This prior with its groups by position, as the features of `data` lie."""
        return replace(self, groups=matched(self.groups, data.feature_names)) if isinstance(self.groups, dict) else self

    def in_units_of(self, data: Data) -> Prior:
        """This prior for `data.Y`, its rates as numbers: noise_rate (G,) or (N,) where noise belongs to these."""
        return in_units_of(self, data)

    def check_fits(self, data: Data) -> None:
        """Refuse data that a prior with a value for each feature (or sample) does not describe."""
        matched(self.groups, data.feature_names)
        wanted = {"feature": data.n_features, "sample": data.n_samples}.get(self.noise)
        if np.ndim(self.noise_rate) == 1 and len(self.noise_rate) != wanted:
            raise ValueError(
                f"noise_rate must be one number, or one for each {self.noise}; got {len(self.noise_rate)} for "
                f"{wanted}; leave it out or make them agree"
            )
        if not isinstance(self.inclusion, Beta) and self.inclusion.ndim == 2:
            rows = self.inclusion.shape[0]
            if rows != data.n_features:
                raise ValueError(
                    f"an inclusion matrix must have one row per feature; got {rows} rows and {data.n_features} "
                    "features; transpose it, or select the features of X"
                )
            names: list[str] | None = getattr(self, "_row_names", None)
            if names is not None and data.feature_names.dtype.kind not in "iu":
                own = [str(name) for name in data.feature_names]
                if names != own:
                    at = next(i for i, (a, b) in enumerate(zip(names, own, strict=True)) if a != b)
                    raise ValueError(
                        f"the rows of inclusion must be named as the features of X; row {at} is {names[at]!r}, the "
                        f"feature {own[at]!r}; reorder it: inclusion.loc[X.columns]"
                    )


Prior.__init__ = with_name_hints(Prior.__init__, "Prior")  # type: ignore[method-assign]
