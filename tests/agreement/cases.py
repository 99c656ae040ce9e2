"""Random problems, states and messages on which an engine is compared with the oracle."""

from typing import NamedTuple

import numpy as np

from sparsefactor.data import Data, as_data
from sparsefactor.engine.jax_engine import JaxEngine
from sparsefactor.kernels.contract import GibbsRows, Message, Sums, VIRows
from sparsefactor.model import Prior

RTOL = 1e-9
NOISES = ("feature", "shared", "sample")
SHAPES = {  # G, N, K, fraction missing
    "plain": (150, 20, 5, 0.0),
    "tenth missing": (150, 20, 5, 0.1),
    "most missing": (150, 20, 5, 0.9),
    "one factor": (40, 9, 1, 0.0),
    "one factor masked": (40, 9, 1, 0.3),
    "one feature": (1, 12, 3, 0.0),
    "fewer samples than factors": (40, 3, 5, 0.0),
    "fewer samples than factors, masked": (40, 3, 5, 0.3),
    "several tiles": (1000, 17, 9, 0.2),
    "several tiles, complete": (1000, 17, 9, 0.0),
}
LARGER = {  # too large for the oracle
    "many tiles": (2100, 17, 9, 0.2),
    "many tiles, complete": (2100, 17, 9, 0.0),
}


class Case(NamedTuple):
    data: Data
    prior: Prior
    F: np.ndarray
    weight: np.ndarray
    logit: np.ndarray


def make_case(
    shape: str, noise: str, *, per_row: bool = False, scale: float = 1.0, dtype=np.float64, groups: int = 1
) -> Case:
    G, N, K, missing = (SHAPES | LARGER)[shape]
    rng = np.random.default_rng(sum(map(ord, shape + noise)))
    L = rng.standard_normal((G, K)) * (rng.random((G, K)) < 0.4)
    F = rng.standard_normal((K, N))
    X = scale * (F.T @ L.T + 0.3 * rng.standard_normal((N, G)))
    if missing:
        gone = rng.random(X.shape) < missing
        gone[rng.integers(N, size=G), np.arange(G)] = False  # some rows keep a single entry
        gone[np.arange(N), rng.integers(G, size=N)] = False
        X[gone] = np.nan
    inclusion = rng.uniform(0.05, 0.6, (G, K)) if per_row else rng.uniform(0.05, 0.6, K)
    rates = {"noise_rate": 1e-3 * scale**2, "loading_rate": 1e-3, "settled": True, "factor_correlation": "none"}
    labels = np.arange(G) % groups if groups > 1 else None
    prior = Prior(n_factors=K, inclusion=inclusion, noise=noise, groups=labels, **rates)
    weight = {"feature": np.ones(N), "shared": np.full(N, 1.7), "sample": rng.uniform(0.5, 3.0, N)}[noise]
    if noise != "feature":
        weight = weight / scale**2
    pi = prior.inclusion_matrix()
    if groups > 1 and not per_row:  # as if rates were learnt
        pi = rng.uniform(0.05, 0.6, (len(prior.group_names), K))
    return Case(as_data(X, dtype=dtype), prior, F, weight, np.log(pi) - np.log1p(-pi))


def make_message(case: Case, f_var: np.ndarray, *, scale: float = 1.0, seed: int = 0) -> Message:
    """A message as the column step would send it, alpha in the units of loadings at data scale `scale`."""
    rng = np.random.default_rng(seed)
    K, N = case.F.shape
    share = np.einsum("kj,lj->jkl", case.F, case.F)
    share = share + (f_var if f_var.ndim == 3 else np.einsum("kj,kl->jkl", f_var, np.eye(K)))
    share *= case.weight[:, None, None]
    own = (K, len(case.prior.group_names)) if case.prior.grouped else (K,)
    alpha = rng.uniform(0.5, 2.0, own) / scale**2
    return Message(
        F=np.ascontiguousarray((case.F * case.weight).T),
        gram=share.sum(axis=0),
        share=share[: 0 if case.data.is_complete else N].copy(),
        alpha=alpha,
        log_alpha=np.log(alpha) - rng.uniform(0.0, 0.3, own),
        logit=case.logit,
        scale=rng.uniform(0.7, 1.4, K),
    )


def vi_rows(case: Case, *, scale: float = 1.0, seed: int = 1) -> VIRows:
    rng = np.random.default_rng(seed)
    G, K = case.data.n_features, case.prior.K
    return VIRows(
        mu=scale * rng.standard_normal((G, K)),
        s2=scale**2 * rng.uniform(0.01, 0.5, (G, K)),
        eta=rng.uniform(0.0, 1.0, (G, K)),
        tau=rng.uniform(0.5, 2.0, G) / scale**2 if case.prior.noise == "feature" else np.ones(G),
    )


def gibbs_rows(case: Case, *, scale: float = 1.0, seed: int = 2) -> GibbsRows:
    rng = np.random.default_rng(seed)
    G, K = case.data.n_features, case.prior.K
    Z = (rng.random((G, K)) < 0.4).astype(np.int8)
    return GibbsRows(Z=Z, L=scale * Z * rng.standard_normal((G, K)), tau=np.ones(G))


def small_numbers(engine, scale: float) -> float:
    """The tolerance at this scale: a device takes what is below 1e-308 for zero, and squares of 1e-150 lose digits."""
    return 1e-7 if engine is JaxEngine and scale < 1e-100 else RTOL


def assert_close(actual: np.ndarray, expected: np.ndarray, name: str, rtol: float = RTOL) -> None:
    """Elementwise to rtol, and to rtol of the largest entry where terms cancel."""
    assert actual.shape == expected.shape, name
    if expected.size:
        np.testing.assert_allclose(actual, expected, rtol=rtol, atol=rtol * np.abs(expected).max(), err_msg=name)


def assert_sums_close(actual: Sums, expected: Sums, rtol: float = RTOL) -> None:
    for name in ("LY", "active", "l2"):
        assert_close(getattr(actual, name), getattr(expected, name), name, rtol)
    # The two may split D_j = LL + LL_share[j] differently.
    if len(expected.LL_share):
        assert_close(actual.LL + actual.LL_share, expected.LL + expected.LL_share, "D", rtol)
    else:
        assert_close(actual.LL, expected.LL, "LL", rtol)
    np.testing.assert_allclose(actual.elbo, expected.elbo, rtol=rtol, atol=1e-12)
    np.testing.assert_allclose(actual.joint, expected.joint, rtol=rtol, atol=1e-12)


def same_bits(a, b) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
