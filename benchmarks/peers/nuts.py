"""The same posterior in NumPyro: Z is summed out by enumeration, everything else is drawn by NUTS.

Exact as the Gibbs sampler is, but 2^K sums for every feature limit it to few factors, and there is no relabelling: the
chain starts at random and its draws are averaged as they are, which is right as long as it stays in one mode.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, init_to_uniform

import sparsefactor as sf
from sparsefactor.model import LEARNT_SLAB, RELATIVE_NOISE_RATE

jax.config.update("jax_enable_x64", True)

WARMUP, DRAWS, MOST_DOUBLINGS = 300, 200, 7  # the stated budget: at most 2**7 gradients a draw


def model(Y: Any, seen: Any, configurations: Any, shapes: tuple[float, float], rates: tuple[Any, float]) -> None:
    """Y (G, N), zero where not seen; the prior of sparsefactor.Prior(n_factors=K) in its numbers for these data."""
    G, N = Y.shape
    K = configurations.shape[1]
    alpha = numpyro.sample("alpha", dist.Gamma(shapes[1], rates[1]).expand([K]))
    pi = numpyro.sample("pi", dist.Beta(1.0, 1.0).expand([K]))
    tau = numpyro.sample("tau", dist.Gamma(shapes[0], rates[0]).expand([G]))
    F = numpyro.sample("F", dist.Normal().expand([K, N]))
    slab = numpyro.sample("slab", dist.Normal().expand([G, K])) / jnp.sqrt(alpha)
    gram = (F @ F.T)[None] if seen is None else jnp.einsum("gn,kn,ln->gkl", seen, F, F)
    pairs = (configurations[:, :, None] * configurations[:, None, :]).reshape(-1, K * K)
    # (G, 2^K): the fit to a feature under every configuration of Z; in all of it but a matrix product.
    fit = (slab * (Y @ F.T)) @ configurations.T
    fit -= 0.5 * (slab[:, :, None] * slab[:, None, :] * gram).reshape(G, K * K) @ pairs.T
    logits = tau[:, None] * fit + configurations @ jnp.log(pi) + (1 - configurations) @ jnp.log1p(-pi)
    count = N if seen is None else seen.sum(axis=1)
    base = 0.5 * count * jnp.log(tau / (2 * jnp.pi)) - 0.5 * tau * (Y**2).sum(axis=1)
    numpyro.factor("rows", (base + jax.nn.logsumexp(logits, axis=1)).sum())
    numpyro.deterministic("weights", jax.nn.softmax(logits, axis=1))  # of the configurations, given the rest
    numpyro.deterministic("scaled_slab", slab)


def sample(X: np.ndarray, K: int, seed: int) -> dict[str, np.ndarray]:
    """Draws by name, (draw, ...), of one chain; X (N, G) is centred, with NaN where missing."""
    prior = sf.Prior(n_factors=K)
    noise_rate = RELATIVE_NOISE_RATE * np.nanmean(X**2, axis=0)
    loading_rate = LEARNT_SLAB[1] * np.nanmean(X**2)
    holes = np.isnan(X)
    Y, seen = np.where(holes, 0.0, X).T, (~holes).T.astype(float) if holes.any() else None
    configurations = np.array(list(itertools.product((0.0, 1.0), repeat=K)))
    kernel = NUTS(model, init_strategy=init_to_uniform(radius=0.5), max_tree_depth=MOST_DOUBLINGS)
    mcmc = MCMC(kernel, num_warmup=WARMUP, num_samples=DRAWS, progress_bar=False)
    mcmc.run(
        jax.random.PRNGKey(seed), Y, seen, configurations, (prior.noise_shape, prior.loading_shape),
        (noise_rate, loading_rate), extra_fields=("num_steps",),
    )  # fmt: skip
    draws = {name: np.asarray(value) for name, value in mcmc.get_samples().items()}
    weights = draws["weights"]  # (draw, G, 2^K)
    u = np.random.default_rng(seed).random((*weights.shape[:2], 1))
    drawn = configurations[np.minimum((weights.cumsum(axis=2) < u).sum(axis=2), len(configurations) - 1)]
    return {
        "F": draws["F"],
        "tau": draws["tau"],
        "inclusion": weights @ configurations,
        "loadings": drawn * draws["scaled_slab"],
        "steps": np.asarray(mcmc.get_extra_fields()["num_steps"]),
    }
