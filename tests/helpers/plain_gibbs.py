"""A sampler of the model written from equations 1.1 to 1.6 alone: one coordinate at a time, nothing shared with `src`.

Slow on purpose: no collapsing over other loadings, no moves, no sums kept between updates.
"""

from __future__ import annotations

import numpy as np


class PlainGibbs:
    """X: (n_samples, n_features), NaN where missing; a and b: the Beta of learnt inclusion, or pi: given (K,)."""

    def __init__(self, X, K, *, noise, noise_prior, loading_prior, pi=None, beta=None, seed=0):
        self.Y = np.where(np.isnan(X), 0.0, X).T
        self.seen = ~np.isnan(X).T
        self.noise, self.noise_prior, self.loading_prior, self.beta = noise, noise_prior, loading_prior, beta
        self.rng = np.random.default_rng(seed)
        G, N = self.Y.shape
        self.L, self.Z = np.zeros((G, K)), np.zeros((G, K), dtype=bool)
        self.F, self.T, self.alpha = self.rng.standard_normal((K, N)), np.ones((G, N)), np.ones(K)
        self.pi = np.full(K, 0.5) if pi is None else np.asarray(pi, dtype=float)

    def sweep(self) -> None:
        self.update_loadings()
        self.update_activations()
        self.update_noise()
        self.update_slab()

    def update_loadings(self) -> None:
        """z_ik with l_ik integrated out, and then l_ik, all others given."""
        G, K = self.L.shape
        for i in range(G):
            weight = self.T[i] * self.seen[i]
            for k in range(K):
                rest = self.Y[i] - self.L[i] @ self.F + self.L[i, k] * self.F[k]
                c = self.alpha[k] + np.sum(weight * self.F[k] ** 2)
                r = np.sum(weight * self.F[k] * rest)
                odds = self.pi[k] / (1 - self.pi[k]) * np.sqrt(self.alpha[k] / c) * np.exp(min(r * r / (2 * c), 600.0))
                self.Z[i, k] = self.rng.random() < odds / (1 + odds)
                self.L[i, k] = self.Z[i, k] * (r / c + self.rng.standard_normal() / np.sqrt(c))

    def update_activations(self) -> None:
        K, N = self.F.shape
        for j in range(N):
            weight = self.T[:, j] * self.seen[:, j]
            precision = np.eye(K) + self.L.T @ (weight[:, None] * self.L)
            covariance = np.linalg.inv(precision)
            mean = covariance @ (self.L.T @ (weight * self.Y[:, j]))
            self.F[:, j] = self.rng.multivariate_normal(mean, covariance)

    def update_noise(self) -> None:
        a, b = self.noise_prior
        square = np.where(self.seen, (self.Y - self.L @ self.F) ** 2, 0.0)
        if self.noise == "shared":
            self.T[:] = self.rng.gamma(a + self.seen.sum() / 2) / (b + square.sum() / 2)
        else:
            axis = 1 if self.noise == "feature" else 0
            tau = self.rng.gamma(a + self.seen.sum(axis=axis) / 2) / (b + square.sum(axis=axis) / 2)
            self.T[:] = np.expand_dims(tau, axis)

    def update_slab(self) -> None:
        a, b = self.loading_prior
        self.alpha = self.rng.gamma(a + self.Z.sum(axis=0) / 2) / (b + np.sum(self.L**2, axis=0) / 2)
        if self.beta is not None:
            count = self.Z.sum(axis=0)
            self.pi = self.rng.beta(self.beta[0] + count, self.beta[1] + len(self.Z) - count)
