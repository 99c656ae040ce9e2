"""What tests on a real cluster of processes on this machine have in common."""

from __future__ import annotations

import numpy as np

import sparsefactor as sf

G, N = 5400, 40  # more than what would be fitted by the client alone
FIT = {"n_factors": 3, "n_trials": 4, "max_iter": 200}
DRAWS = {"n_factors": 3, "n_chains": 2, "n_warmup": 4, "n_draws": 6, "init": "varimax", "progress": False}
CLUSTER = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": 0}
RUGGED = np.random.default_rng(0).standard_normal((40, 8)) @ np.random.default_rng(1).standard_normal((8, 8))


def same(a: sf.VIPosterior, b: sf.VIPosterior) -> bool:
    names = ("loadings_mean", "loadings_sd", "inclusion_prob", "activations_mean", "noise_precision_mean")
    return a.elbo == b.elbo and all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names)


def loadings(mc: sf.MCMCPosterior):
    return mc.draws["posterior"]["loadings"].values
