"""The methods side by side: each takes X (samples by features, centred, NaN where missing) and gives a `Fitted`."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

import sparsefactor as sf

Array = np.ndarray
MANY = 20  # factors, where their number is to be no limit
ROUNDS = 5  # of fitting and filling in again, for methods that take no NaN
PENALTIES = 15  # of soft-impute, over two orders of magnitude


@dataclass
class Fitted:
    """What a method says: a prediction for every entry, and what else it has."""

    predicted: Array  # (N, G)
    loadings: Array | None = None  # (G, K)
    activations: Array | None = None  # (N, K)
    inclusion: Array | None = None  # (G, K) probabilities, or 0 and 1
    density: Callable[[Array], Array] | None = None  # of every entry of a complete X, (N, G)

    def score(self, truth: sf.Simulation) -> dict[str, float]:
        """Errors against a truth. X was centred by `offset`, which tells `sf.score` to centre the truth as well."""
        offset = truth.X.mean(axis=0)
        if self.loadings is None or self.activations is None:
            signal = truth.signal - truth.signal.mean(axis=0)
            error = np.linalg.norm(self.predicted - signal) / np.linalg.norm(signal)
            return {"rrmse_signal": float(error)}
        p = SimpleNamespace(
            loadings_mean=self.loadings,
            activations_mean=self.activations,
            inclusion_prob=np.ones_like(self.loadings) if self.inclusion is None else self.inclusion,
            labels=SimpleNamespace(offset=offset),
            reconstruct=lambda: self.predicted + offset,
        )
        told = sf.score(p, truth)
        if self.inclusion is None:
            del told["z_accuracy"]
        return told


def gaussian(mean: Array, sd: Array) -> Callable[[Array], Array]:
    return lambda X: -0.5 * ((X - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi)


# ---- this package --------------------------------------------------------------------------------------------------


def ours(p: Any) -> Fitted:
    return Fitted(
        p.reconstruct(), p.loadings_mean, p.activations_mean, p.inclusion_prob,
        lambda X: np.asarray(p.log_density(X, of="entries")),
    )  # fmt: skip


def sparsefactor_vi(X: Array, K: int, seed: int) -> Fitted:
    return ours(sf.fit_vi(X, n_factors=K, seed=seed))


def sparsefactor_many(X: Array, K: int, seed: int) -> Fitted:
    """As many factors as predict: soft-impute's rank is free as well."""
    return ours(sf.fit_vi(X, n_factors=max(K, min(MANY, min(X.shape) - 1)), n_trials=10, seed=seed))


def sparsefactor_mcmc(X: Array, K: int, seed: int) -> Fitted:
    return ours(sf.sample(X, n_factors=K, seed=seed, progress=False))


# ---- peers ---------------------------------------------------------------------------------------------------------


def mofa(X: Array, K: int, seed: int) -> Fitted:
    """mofapy2 with its default priors (spike and slab, ARD), to its slow criterion of convergence."""
    from mofapy2.run.entry_point import entry_point

    with contextlib.redirect_stdout(io.StringIO()):
        run = entry_point()
        run.set_data_options()
        run.set_data_matrix([[X.copy()]])
        run.set_model_options(factors=K)
        run.set_train_options(iter=1000, convergence_mode="slow", seed=seed + 1, quiet=True)
        run.build()
        run.run()
    told = run.model.getExpectations()
    Z, W, tau = told["Z"], told["W"][0], told["Tau"][0]["E"]
    mean = Z["E"] @ W["E"].T
    spread = Z["E2"] @ W["E2"].T - (Z["E"] ** 2) @ (W["E"] ** 2).T
    return Fitted(mean, W["E"], Z["E"], W["EB"], gaussian(mean, np.sqrt(spread + 1 / tau)))


def refilled(X: Array, fit: Callable[[Array], tuple[Any, Array]]) -> tuple[Any, Array]:
    """A method without NaN on X: gaps begin at the mean (zero) and are filled in by the last fit, ROUNDS times."""
    holes = np.isnan(X)
    filled = np.where(holes, 0.0, X)
    model, predicted = fit(filled)
    for _ in range(ROUNDS if holes.any() else 0):
        filled = np.where(holes, predicted, X)
        model, predicted = fit(filled)
    return model, predicted


def factor_analysis(X: Array, K: int, seed: int, rotation: str = "varimax") -> Fitted:
    """scikit-learn's FactorAnalysis, rotated by its varimax, or by another rotation of factor_analyzer."""
    from sklearn.decomposition import FactorAnalysis

    def fit(filled: Array) -> tuple[Any, Array]:
        own = rotation if rotation == "varimax" else None
        model = FactorAnalysis(K, rotation=own, random_state=seed).fit(filled)
        return model, model.transform(filled) @ model.components_ + model.mean_

    model, predicted = refilled(X, fit)
    filled = np.where(np.isnan(X), predicted, X)
    mean, sd = conditional(X, model.mean_, model.get_covariance())
    held = np.isnan(X)
    predicted = np.where(held, mean, predicted)
    loadings, activations = model.components_.T, model.transform(filled)
    if rotation != "varimax":  # the prediction is the same under any rotation
        from factor_analyzer import Rotator

        rotator = Rotator(method=rotation)
        unrotated, loadings = loadings, rotator.fit_transform(loadings)
        activations = activations @ np.linalg.lstsq(loadings, unrotated, rcond=None)[0].T
    return Fitted(predicted, loadings, activations, None, gaussian(predicted, sd))


def conditional(X: Array, mean: Array, covariance: Array) -> tuple[Array, Array]:
    """Mean and deviation of the missing entries of each sample given its observed ones, under a Gaussian."""
    expected, sd = np.zeros_like(X), np.ones_like(X)
    for n, x in enumerate(X):
        gap = np.isnan(x)
        if not gap.any():
            continue
        weights = np.linalg.solve(covariance[np.ix_(~gap, ~gap)], covariance[np.ix_(~gap, gap)])
        expected[n, gap] = mean[gap] + (x[~gap] - mean[~gap]) @ weights
        left = np.diag(covariance)[gap] - np.einsum("ij,ij->j", weights, covariance[np.ix_(~gap, gap)])
        sd[n, gap] = np.sqrt(np.maximum(left, 1e-12))
    return expected, sd


def sparse_pca(X: Array, K: int, seed: int) -> Fitted:
    """scikit-learn's SparsePCA with its default penalty; a loading counts as included where it is not zero."""
    from sklearn.decomposition import SparsePCA

    def fit(filled: Array) -> tuple[Any, Array]:
        model = SparsePCA(K, method="cd", random_state=seed).fit(filled)
        return model, model.transform(filled) @ model.components_ + model.mean_

    model, predicted = refilled(X, fit)
    activations = model.transform(np.where(np.isnan(X), predicted, X))
    return Fitted(predicted, model.components_.T, activations, (model.components_.T != 0).astype(float))


def soft_impute(X: Array, K: int, seed: int) -> Fitted:
    """Iterated soft-thresholded SVD, of any rank; the penalty by a tenth of the entries that are held out beforehand."""
    holes = np.isnan(X)
    inner = ~holes & (np.random.default_rng([seed, 1]).random(X.shape) < 0.1)
    largest = np.linalg.norm(np.where(holes, 0.0, X), 2)
    penalties = largest * np.geomspace(0.9, 0.02, PENALTIES)
    errors = [np.mean((Z - X)[inner] ** 2) for Z in path(np.where(inner, np.nan, X), penalties)]
    chosen = penalties[: int(np.argmin(errors)) + 1]
    return Fitted(path(X, chosen)[-1])


def path(X: Array, penalties: Array, tol: float = 1e-4, most: int = 100) -> list[Array]:
    """Solutions from the largest penalty to the smallest, each begun at the last."""
    holes, Z, found = np.isnan(X), np.zeros_like(X), []
    for penalty in penalties:
        for _ in range(most):
            new = thresholded(np.where(holes, Z, X), penalty)
            moved = np.sum((new - Z) ** 2) / max(np.sum(Z**2), 1e-12)
            Z = new
            if not holes.any() or moved < tol**2:
                break
        found.append(Z)
    return found


def thresholded(A: Array, penalty: float) -> Array:
    """A with its singular values less the penalty, those below it gone; by the Gram matrix of A's shorter side."""
    if A.shape[0] > A.shape[1]:
        return thresholded(A.T, penalty).T
    squares, U = np.linalg.eigh(A @ A.T)
    s = np.sqrt(np.maximum(squares, 1e-30))
    return (U * np.maximum(1 - penalty / s, 0.0)) @ (U.T @ A)


def numpyro_nuts(X: Array, K: int, seed: int) -> Fitted:
    """The same posterior, Z summed out, by NUTS from a random start (nuts.py states the budget)."""
    from . import nuts

    draws = nuts.sample(X, K, seed)
    F, L, tau = draws["F"], draws["loadings"], draws["tau"]
    signal = np.einsum("dkn,dgk->dng", F, L)

    def density(values: Array) -> Array:
        each = -0.5 * tau[:, None] * (values - signal) ** 2 + 0.5 * np.log(tau / (2 * np.pi))[:, None]
        top = each.max(axis=0)
        return top + np.log(np.exp(each - top).mean(axis=0))

    return Fitted(signal.mean(axis=0), L.mean(axis=0), F.mean(axis=0).T, draws["inclusion"].mean(axis=0), density)


METHODS: dict[str, Callable[[Array, int, int], Fitted]] = {
    "sparsefactor VI": sparsefactor_vi,
    "sparsefactor VI, 20": sparsefactor_many,
    "sparsefactor MCMC": sparsefactor_mcmc,
    "mofapy2": mofa,
    "FactorAnalysis": factor_analysis,
    "SparsePCA": sparse_pca,
    "soft-impute": soft_impute,
    "NumPyro NUTS": numpyro_nuts,
}


def quietly(method: str, X: Array, K: int, seed: int) -> Fitted:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of peers' own; ours are in the verdicts
        return METHODS[method](X, K, seed)
