"""Data drawn from the model, with the truth beside it: any shape, and the paper's own simulation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .checks import checked_count, is_number
from .groups import checked_groups, matched, numbered
from .model import RELATIVE_NOISE_RATE, Beta, Prior, draw_modules, slab_default

Array = NDArray[np.float64]

# The paper's structure of Z: the ones of each factor, in fortieths of the features.
PAPER_BLOCKS = (
    ((30, 31), (36, 37), (39, 40)),
    ((6, 7), (20, 21), (22, 23), (36, 39)),
    ((0, 1), (5, 6), (20, 22), (30, 36)),
    ((0, 5), (20, 30)),
    ((0, 20),),
    ((0, 40),),
)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Simulation:
    """Simulated data and the truth behind them.

    Attributes
    ----------
    X : (n_samples, n_features)
        The data, NaN where missing.
    X_complete : (n_samples, n_features)
        The same without holes.
    loadings : (n_features, n_factors)
        Zero where not included.
    activations : (n_samples, n_factors)
        As they were drawn or given.
    inclusion : (n_features, n_factors) bool
        Where loadings are not zero.
    noise_precision : (n_features,)
        Or () and (n_samples,) for a prior whose noise is "shared" or "sample".
    loading_precision : (n_factors,)
        Of the slab, NaN where the loadings were given.
    inclusion_rate : (n_factors,)
        As drawn from a Beta, or (0,) where there was none. With modules, the mean over features.
    groups : (n_features,) labels, or None
        Where features are in known groups; loading_precision and inclusion_rate then have a row for each group.
    module, module_rate, module_weight : (n_features,), (n_modules, n_factors) and (n_modules,), or None
        Where the prior has modules.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.2], snr=4, missing=0.1, seed=0)
    >>> sim.signal.shape, int(sim.missing.sum())
    ((30, 40), 120)
    """

    X: Array
    X_complete: Array
    loadings: Array
    activations: Array
    inclusion: NDArray[np.bool_]
    noise_precision: Array
    loading_precision: Array
    inclusion_rate: Array
    groups: NDArray[np.str_] | None = None
    module: NDArray[np.intp] | None = None
    module_rate: Array | None = None
    module_weight: Array | None = None

    def __repr__(self) -> str:
        holes = f", {np.isnan(self.X).mean():.1%} missing" if np.isnan(self.X).any() else ""
        return f"Simulation: {self.n_samples} samples x {self.n_features} features, {self.n_factors} factors{holes}"

    def _repr_html_(self) -> str:
        return f"<div>{self!r}</div>"

    @property
    def signal(self) -> Array:
        """(n_samples, n_features): F'L', the data's expectation."""
        return self.activations @ self.loadings.T

    @property
    def missing(self) -> NDArray[np.bool_]:
        """(n_samples, n_features): where X has a hole."""
        return np.isnan(self.X)

    @property
    def n_samples(self) -> int:
        """Rows of X."""
        return self.X.shape[0]

    @property
    def n_features(self) -> int:
        """Columns of X."""
        return self.X.shape[1]

    @property
    def n_factors(self) -> int:
        """Factors of the truth."""
        return self.loadings.shape[1]


def simulate(
    *,
    n_features: int,
    n_samples: int,
    inclusion: ArrayLike | None = None,
    n_factors: int | None = None,
    snr: float | None = None,
    prior: Prior | None = None,
    loadings: ArrayLike | None = None,
    activations: ArrayLike | None = None,
    groups: Any = None,
    missing: float = 0.0,
    seed: int = 0,
) -> Simulation:
    """Draw data from the sparse factor model (docs/math.md, equations 1.1 to 1.6).

    What is not given is drawn, standard normal without a prior.

    Parameters
    ----------
    n_features, n_samples : int
        The size of the data.
    inclusion : float or array, optional
        Probability that a loading is non-zero, in [0, 1]: a scalar (with n_factors), (n_factors,) or
        (n_features, n_factors). A matrix of zeros and ones is Z itself.
    n_factors : int, optional
        Where nothing else tells it.
    snr : float, optional
        Sets each feature's noise precision to snr / V_i, V_i the sample variance of its signal. A feature without
        signal gets the median noise of those that have one (precision 1 where none has).
    prior : Prior, optional
        Draws the inclusion rate (where it is a Beta), the slab precision and, without snr, the noise precision.
    loadings : (n_features, n_factors), optional
        Used where Z is one; without `inclusion`, Z is where they are non-zero.
    activations : (n_samples, n_factors), optional
        Drawn where they are not given.
    groups : (n_features,) labels, optional
        Known groups of features (views). `inclusion` may then be (n_groups, n_factors), in the order in which the
        labels appear: zero where a factor is not in a group. A prior's own groups are used where it has some.
    missing : float
        Fraction of the entries made NaN, at random; every feature and every sample keeps at least one.
    seed : int
        Parts have streams of their own, so e.g. another snr or missing leaves loadings and activations alone.

    Returns
    -------
    Simulation

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.2], snr=4, seed=0)
    >>> sim.X.shape, sim.loadings.shape
    ((30, 40), (40, 2))
    """
    G, N = checked_count("n_features", n_features), checked_count("n_samples", n_samples)
    if inclusion is not None and prior is not None:
        raise ValueError(
            "inclusion must come from one place; got both inclusion and prior; leave inclusion out, or put it "
            "into the prior"
        )
    if snr is None and prior is None:
        raise ValueError("the noise must be set by snr or prior; got neither; pass e.g. snr=5")
    labels = _agreed_groups(groups, prior, G)
    probability = None if inclusion is None else _checked_probability(inclusion)
    if labels is not None and probability is not None and probability.ndim == 2 and len(probability) != G:
        probability = _by_group(probability, labels)
    given_L = None if loadings is None else _checked_matrix("loadings", loadings, G, "n_features")
    given_F = None if activations is None else _checked_matrix("activations", activations, N, "n_samples")
    K = _agreed_n_factors(n_factors, probability, prior, given_L, given_F)
    rngs = [np.random.default_rng(child) for child in np.random.SeedSequence(checked_count("seed", seed, 0)).spawn(6)]
    rng_Z, rng_L, rng_F, rng_precision, rng_noise, rng_missing = rngs

    rate, modules = np.zeros(0), dict[str, Any]()
    if prior is not None:
        probability = prior.inclusion_matrix()
        if prior.n_modules > 1:
            modules = draw_modules(prior, G, rng_Z)
            probability = modules["module_rate"][modules["module"]]
            rate = probability.mean(axis=0)
        elif isinstance(prior.inclusion, Beta):
            rate = rng_Z.beta(prior.inclusion.a, prior.inclusion.b, size=_own_shape(prior))
            probability = prior.by_row(rate.T)
    if given_L is not None and inclusion is None:
        Z = given_L != 0
    elif probability is None:
        raise ValueError("inclusion must be given where it cannot be read off; got None; pass e.g. inclusion=0.1")
    else:
        Z = _draw_inclusion(probability, G, K, rng_Z)

    alpha = np.ones(K) if prior is None else np.ones(_own_shape(prior))
    if given_L is not None:
        alpha = np.full(K, np.nan)
        L = np.where(Z, given_L, 0.0)
    else:
        if prior is not None:
            rate_alpha = _rate(prior.loading_rate, slab_default(prior.inclusion)[1])
            alpha = _gamma(rng_precision, "loading", prior.loading_shape, rate_alpha, alpha.shape)
        slab = alpha if prior is None else prior.by_row(alpha.T)
        L = np.where(Z, rng_L.standard_normal((G, K)) / np.sqrt(slab), 0.0)
    F = rng_F.standard_normal((N, K)) if given_F is None else given_F

    signal = F @ L.T
    if snr is not None:
        tau = _noise_precision_of_snr(signal, snr, prior)
    else:
        assert prior is not None
        size = {"feature": (G,), "shared": (), "sample": (N,)}[prior.noise]
        tau = _gamma(rng_precision, "noise", prior.noise_shape, _rate(prior.noise_rate, RELATIVE_NOISE_RATE), size)
    by_sample = prior is not None and prior.noise == "sample"
    noise = rng_noise.standard_normal((N, G)) / np.sqrt(tau[:, None] if by_sample else tau)
    complete = signal + noise
    return Simulation(
        X=np.where(_draw_missing(missing, N, G, rng_missing), np.nan, complete),
        X_complete=complete,
        loadings=L,
        activations=F,
        inclusion=Z,
        noise_precision=tau,
        loading_precision=alpha,
        inclusion_rate=rate,
        groups=labels,
        **modules,
    )


def _own_shape(prior: Prior) -> tuple[int, ...]:
    """The shape of what belongs to each group of features, or to all of them."""
    return (len(prior.group_names), prior.K) if prior.grouped else (prior.K,)


def _agreed_groups(groups: Any, prior: Prior | None, G: int) -> NDArray[np.str_] | None:
    if groups is not None and prior is not None:
        raise ValueError("groups must come from one place; got groups beside a prior; put them into the prior")
    return matched(checked_groups(groups) if prior is None else prior.groups, np.arange(G))


def _by_group(probability: Array, labels: NDArray[np.str_]) -> Array:
    """(n_features, n_factors) of probabilities with a row for each group."""
    names, index = numbered(labels)
    if len(probability) != len(names):
        raise ValueError(
            f"an inclusion matrix must have one row per feature, or per group; got {len(probability)} rows for "
            f"{len(labels)} features in {len(names)} groups; add or drop rows"
        )
    return probability[index]


def simulate_paper(snr: float = 5, seed: int = 0, missing: float = 0.0) -> Simulation:
    """The paper's simulation: 800 features, 100 samples, five sparse factors and a dense one, the same Z for all.

    Parameters
    ----------
    snr : float
        Signal-to-noise ratio of every feature; the paper has 1, 5 and 25.
    seed : int
        Another seed, another data set with the same Z.
    missing : float
        Fraction of the entries made NaN, at random.

    Returns
    -------
    Simulation

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sf.simulate_paper(snr=5, seed=0).X.shape
    (100, 800)
    """
    return simulate(n_features=800, n_samples=100, inclusion=paper_inclusion(), snr=snr, missing=missing, seed=seed)


def paper_inclusion(n_features: int = 800) -> NDArray[np.bool_]:
    """(n_features, 6): the paper's block structure of Z; n_features a multiple of 40."""
    if n_features < 40 or n_features % 40:
        raise ValueError(
            f"the paper's structure needs a multiple of 40 features; got {n_features}; use the paper's 800"
        )
    Z = np.zeros((n_features, len(PAPER_BLOCKS)), dtype=bool)
    for k, blocks in enumerate(PAPER_BLOCKS):
        for start, stop in blocks:
            Z[start * n_features // 40 : stop * n_features // 40, k] = True
    return Z


def _draw_inclusion(probability: Array, G: int, K: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    if probability.ndim == 2 and probability.shape[0] not in (1, G):
        raise ValueError(
            f"an inclusion matrix must have one row per feature; got {probability.shape[0]} rows and {G} features; "
            "transpose it, or change n_features"
        )
    return rng.random((G, K)) < probability


def _noise_precision_of_snr(signal: Array, snr: float, prior: Prior | None) -> Array:
    """(n_features,): snr / V_i (6.1), and for features without signal the median of the others' noise."""
    if not (is_number(snr) and np.isfinite(snr) and snr > 0):
        raise ValueError(f"snr must be a positive number; got {snr!r}; pass e.g. snr=5")
    if prior is not None and prior.noise != "feature":
        raise ValueError(
            f"snr sets one noise precision per feature; got a prior with noise={prior.noise!r}; leave snr out to draw "
            'the noise from the prior, or use noise="feature"'
        )
    if len(signal) < 2:
        raise ValueError(
            f"snr needs the sample variance of the signal, so n_samples >= 2; got {len(signal)}; use a prior instead"
        )
    variance = np.var(signal, axis=0, ddof=1)
    # A constant signal has variance zero but for rounding.
    variance[variance <= (8 * np.finfo(float).eps * np.abs(signal).max(axis=0)) ** 2] = 0.0
    has_signal = variance > 0
    if not has_signal.any():
        return np.ones(len(variance))
    variance[~has_signal] = np.median(variance[has_signal])
    return snr / variance


def _gamma(rng: np.random.Generator, what: str, shape: float, rate: float, size: Any) -> Array:
    """Gamma draws; a vague prior's draws underflow, and 1 / sqrt(precision) would not be finite."""
    draws = np.asarray(rng.gamma(shape, 1.0 / rate, size=size))
    if not np.all(np.isfinite(draws) & (draws > 1e-200)):
        raise ValueError(
            f"{what}_shape must be large enough to draw from; got {shape:g}, under which a drawn precision is "
            f"{float(draws.min()):g}; pass a prior with e.g. {what}_shape=3"
        )
    return draws


def _draw_missing(missing: float, N: int, G: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """(N, G) holes: as many as asked for, all entries equally likely, no row or column empty."""
    if not (is_number(missing) and 0 <= missing < 1):
        raise ValueError(f"missing must be a fraction, at least 0 and below 1; got {missing!r}; pass e.g. missing=0.1")
    holes = np.zeros((N, G), dtype=bool)
    count = round(missing * (N * G))
    if count == 0:
        return holes
    # These max(N, G) entries stay: they meet every sample and every feature.
    index = np.arange(max(N, G))
    kept = np.zeros((N, G), dtype=bool)
    kept[rng.permutation(N)[index % N], rng.permutation(G)[index % G]] = True
    free = np.flatnonzero(~kept)
    if count > len(free):
        raise ValueError(
            f"missing must leave an entry to every feature and sample; got {missing:g} at {N} samples by {G} features; "
            f"the most is {len(free) / (N * G):.3g}"
        )
    holes.flat[rng.choice(free, size=count, replace=False)] = True
    return holes


def _rate(given: Any, relative: float) -> Any:
    """A prior's rate; where it is left to the data, that of data with a mean square of one."""
    return relative if given is None else given


def _checked_probability(inclusion: ArrayLike) -> Array:
    try:
        values = np.array(inclusion, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"inclusion must be a number, a vector or a matrix; got {inclusion!r}; pass e.g. inclusion=0.1"
        ) from None
    if values.ndim > 2 or values.size == 0:
        raise ValueError(
            f"inclusion must be a scalar, (n_factors,) or (n_features, n_factors); got shape {values.shape}; reshape it"
        )
    inside = (values >= 0) & (values <= 1)
    if not inside.all():
        raise ValueError(f"inclusion must lie between 0 and 1; got {values[~inside].flat[0]:g}; pass probabilities")
    return values


def _checked_matrix(name: str, given: ArrayLike, rows: int, rows_name: str) -> Array:
    values = np.array(given, dtype=np.float64)
    if values.ndim != 2 or values.shape[0] != rows or values.shape[1] < 1:
        raise ValueError(
            f"{name} must be ({rows_name}, n_factors); got shape {values.shape} with {rows_name}={rows}; transpose it"
        )
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite; got {values[~np.isfinite(values)].flat[0]:g}; replace such entries")
    return values


def _agreed_n_factors(
    n_factors: int | None, probability: Array | None, prior: Prior | None, L: Array | None, F: Array | None
) -> int:
    claims = {
        "n_factors": None if n_factors is None else checked_count("n_factors", n_factors),
        "inclusion": None if probability is None or probability.ndim == 0 else probability.shape[-1],
        "prior": None if prior is None else prior.K,
        "loadings": None if L is None else L.shape[1],
        "activations": None if F is None else F.shape[1],
    }
    found = {name: K for name, K in claims.items() if K is not None}
    if not found:
        raise ValueError("n_factors must be given when inclusion is a scalar; got None; pass n_factors=...")
    if len(set(found.values())) > 1:
        listed = ", ".join(f"{K} by {name}" for name, K in found.items())
        raise ValueError(f"the number of factors must be one; got {listed}; make them agree")
    return next(iter(found.values()))
