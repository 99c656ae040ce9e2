"""Data drawn from the model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import checked_count, seed_number
from ..model import RELATIVE_NOISE_RATE, Beta, Prior, draw_modules, slab_default
from .checks import agreed_groups, agreed_n_factors, by_group, checked_correlation, checked_matrix, checked_probability
from .noise import draw_missing, gamma, noise_precision_of_snr
from .simulation import Array, Simulation


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
    factor_correlation: ArrayLike | None = None,
    groups: Any = None,
    missing: float = 0.0,
    seed: int | np.random.Generator | None = 0,
) -> Simulation:
    """Draw data from the sparse factor model (math.md, equations 1.1 to 1.6).

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
    factor_correlation : float or (n_factors, n_factors), optional
        Of the activations that are drawn: one number for every pair of factors, or a correlation matrix. Left out, it
        is drawn where the prior learns it, and factors are uncorrelated otherwise.
    groups : (n_features,) labels, optional
        Known groups of features (views). `inclusion` may then be (n_groups, n_factors), in the order in which the
        labels appear: zero where a factor is not in a group. A prior's own groups are used where it has some.
    missing : float
        Fraction of the entries made NaN, at random; every feature and every sample keeps at least one.
    seed : int, Generator or None
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
    labels = agreed_groups(groups, prior, G)
    probability = None if inclusion is None else checked_probability(inclusion)
    if labels is not None and probability is not None and probability.ndim == 2 and len(probability) != G:
        probability = by_group(probability, labels)
    given_L = None if loadings is None else checked_matrix("loadings", loadings, G, "n_features")
    given_F = None if activations is None else checked_matrix("activations", activations, N, "n_samples")
    K = agreed_n_factors(n_factors, probability, prior, given_L, given_F)
    rngs = [np.random.default_rng(child) for child in np.random.SeedSequence(seed_number(seed)).spawn(7)]
    rng_Z, rng_L, rng_F, rng_precision, rng_noise, rng_missing, rng_phi = rngs

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
            alpha = gamma(rng_precision, "loading", prior.loading_shape, rate_alpha, alpha.shape)
        slab = alpha if prior is None else prior.by_row(alpha.T)
        L = np.where(Z, rng_L.standard_normal((G, K)) / np.sqrt(slab), 0.0)
    phi = _factor_correlation(factor_correlation, prior, K, given_F, rng_phi)
    F = rng_F.standard_normal((N, K)) @ np.linalg.cholesky(phi).T if given_F is None else given_F

    signal = F @ L.T
    if snr is not None:
        tau = noise_precision_of_snr(signal, snr, prior)
    else:
        assert prior is not None
        size = {"feature": (G,), "shared": (), "sample": (N,)}[prior.noise]
        tau = gamma(rng_precision, "noise", prior.noise_shape, _rate(prior.noise_rate, RELATIVE_NOISE_RATE), size)
    by_sample = prior is not None and prior.noise == "sample"
    noise = rng_noise.standard_normal((N, G)) / np.sqrt(tau[:, None] if by_sample else tau)
    complete = signal + noise
    return Simulation(
        X=np.where(draw_missing(missing, N, G, rng_missing), np.nan, complete),
        X_complete=complete,
        loadings=L,
        activations=F,
        inclusion=Z,
        noise_precision=tau,
        loading_precision=alpha,
        inclusion_rate=rate,
        factor_correlation=phi,
        groups=labels,
        **modules,
    )


def _own_shape(prior: Prior) -> tuple[int, ...]:
    """The shape of what belongs to each group of features, or to all of them."""
    return (len(prior.group_names), prior.K) if prior.grouped else (prior.K,)


def _factor_correlation(
    given: ArrayLike | None, prior: Prior | None, K: int, F: Array | None, rng: np.random.Generator
) -> Array:
    """(K, K) of the activations that are drawn; NaN where these are given."""
    if given is not None and F is not None:
        raise ValueError("factor_correlation is of activations that are drawn; got both; leave one of them out")
    if F is not None:
        return np.full((K, K), np.nan)
    if given is not None:
        return checked_correlation(given, K)
    if prior is None or not prior.correlated:
        return np.eye(K)
    from scipy.stats import invwishart  # which takes a while to import

    covariance = invwishart(prior.correlation_df, np.eye(K)).rvs(random_state=rng)
    scale = np.sqrt(np.diagonal(covariance))
    return np.where(np.eye(K, dtype=bool), 1.0, covariance / np.outer(scale, scale))


def _draw_inclusion(probability: Array, G: int, K: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    if probability.ndim == 2 and probability.shape[0] not in (1, G):
        raise ValueError(
            f"an inclusion matrix must have one row per feature; got {probability.shape[0]} rows and {G} features; "
            "transpose it, or change n_features"
        )
    return rng.random((G, K)) < probability


def _rate(given: Any, relative: float) -> Any:
    """A prior's rate; where it is left to the data, that of data with a mean square of one."""
    return relative if given is None else given
