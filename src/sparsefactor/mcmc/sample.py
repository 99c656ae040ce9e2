"""sample: several chains of the collapsed Gibbs sampler, relabelled into one posterior."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..data import Data, as_data
from ..engine import build_kernels
from ..kernels.contract import Array
from ..kernels.noise import stream_key
from ..model import Prior
from ..posterior import DIMS, NOISE_DIMS, Labels, MCMCPosterior
from ..relabel import relabel
from ..start import INITS, Start, starts
from ..vi.fit import ConvergenceWarning, fit_vi
from .dispersed import dispersed_start
from .moves import MOVES
from .state import Gibbs, GibbsState

logger = logging.getLogger("sparsefactor")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The settings of sample, checked once."""

    n_chains: int
    n_warmup: int
    n_draws: int
    thin: int
    init: str | Start
    moves: tuple[str, ...]
    seed: int
    backend: str

    def __post_init__(self) -> None:
        for name, least in (("n_chains", 1), ("n_warmup", 0), ("n_draws", 1), ("thin", 1), ("seed", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}; raise it")
        if not isinstance(self.init, Start) and self.init not in INITS:
            raise ValueError(f"init must be one of {INITS} or a Start; got {self.init!r}; choose one of them")
        unknown = [name for name in self.moves if name not in MOVES]
        if unknown:
            raise ValueError(f"moves must be among {tuple(MOVES)}; got {unknown[0]!r}; leave it out")


class Chain:
    """The kept draws of one chain, in the paper's labelling, and what is accumulated over them."""

    def __init__(self, gibbs: Gibbs, options: Options) -> None:
        data, K, n = gibbs.data, gibbs.prior.K, options.n_draws
        G, N = data.n_features, data.n_samples
        self.gibbs = gibbs
        self.loadings = np.empty((n, G, K))
        self.inclusion = np.empty((n, G, K), dtype=bool)
        self.activations = np.empty((n, N, K))
        self.noise_precision = np.empty((n, *{"feature": (G,), "shared": (), "sample": (N,)}[gibbs.prior.noise]))
        self.loading_precision = np.empty((n, K))
        self.inclusion_rate = np.empty((n, K if gibbs.prior.learns_inclusion else 0))
        self.log_joint = np.empty(n)
        self.signal = np.zeros((N, G))

    def keep(self, t: int, state: GibbsState, log_joint: float) -> None:
        noise = {"feature": state.rows.tau, "shared": state.tau[:1].sum(), "sample": state.tau}
        self.loadings[t] = state.loadings
        self.inclusion[t] = state.rows.Z
        self.activations[t] = state.F.T
        self.noise_precision[t] = noise[self.gibbs.prior.noise]
        self.loading_precision[t] = state.alpha
        self.inclusion_rate[t] = state.pi
        self.log_joint[t] = log_joint
        self.signal += self.activations[t] @ self.loadings[t].T

    def run(self, start: Start, options: Options, chain: int) -> None:
        key = stream_key(options.seed, chain)
        state = self.gibbs.start(start.L, start.F)
        sweep = 0
        for _ in range(options.n_warmup):
            state, _ = self.gibbs.sweep(state, key, sweep)
            sweep += 1
        for t in range(options.n_draws):
            for _ in range(options.thin):
                state, info = self.gibbs.sweep(state, key, sweep)
                sweep += 1
            self.keep(t, state, info.log_joint)
        self.signal /= options.n_draws


def sample(
    X: Any,
    prior: Prior,
    *,
    n_chains: int = 4,
    n_warmup: int = 500,
    n_draws: int = 1000,
    thin: int = 1,
    init: str | Start = "auto",
    moves: Sequence[str] = ("scale",),
    center: bool = False,
    seed: int = 0,
    backend: str = "auto",
) -> MCMCPosterior:
    """Draw from the posterior of the sparse factor model given X by collapsed Gibbs sampling.

    X: (n_samples, n_features), NaN where missing. Each chain makes n_warmup sweeps, then n_draws * thin, of which
    every thin-th is kept. init: "auto" (dispersed around the best VI optimum), or a start by name ("random" is the
    paper's). moves: extra steps that leave the posterior invariant; () is the paper's plain sampler.
    The draws of all chains are relabelled into one labelling (see `relabel`); the sampler's own can be recovered.
    """
    options = Options(
        n_chains=n_chains,
        n_warmup=n_warmup,
        n_draws=n_draws,
        thin=thin,
        init=init,
        moves=tuple(moves),
        seed=seed,
        backend=backend,
    )
    data = as_data(X, center=center)
    prior.check_fits(data)
    kernels = build_kernels(data, prior, backend)
    gibbs = Gibbs(data, prior, kernels, [MOVES[name]() for name in options.moves])
    chains = []
    for number, start in enumerate(chain_starts(data, prior, options)):
        chain = Chain(gibbs, options)
        chain.run(start, options, number)
        logger.info("chain %d of %d done, log joint %.3f", number + 1, n_chains, chain.log_joint[-1])
        chains.append(chain)
    return posterior(data, prior, chains)


def chain_starts(data: Data, prior: Prior, options: Options) -> Iterator[Start]:
    """Where each chain sets out: around the best VI optimum for "auto", else as `starts` has it."""
    if isinstance(options.init, Start):
        for _ in range(options.n_chains):
            yield options.init
    elif options.init == "auto":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a start need not have converged
            vi = fit_vi(data, prior, seed=options.seed, backend=options.backend, max_iter=500, tol=1e-2)
        for chain in range(options.n_chains):
            yield dispersed_start(vi, np.random.default_rng([options.seed, chain, 3]))
    else:
        yield from starts(data, prior, options.init, options.n_chains, options.seed)


def posterior(data: Data, prior: Prior, chains: list[Chain]) -> MCMCPosterior:
    """The public result: one labelling for all draws, and their moments."""
    import xarray as xr

    dims = {**DIMS, "noise_precision": NOISE_DIMS[prior.noise]}
    if not prior.learns_inclusion:
        del dims["inclusion_rate"]
    variables = {
        name: (("chain", "draw", *own), np.stack([getattr(chain, name) for chain in chains]))
        for name, own in dims.items()
    }
    coords = {
        "chain": np.arange(len(chains)),
        "draw": np.arange(len(chains[0].log_joint)),
        "feature": data.feature_names,
        "observation": data.sample_names,
        "factor": np.arange(prior.K),
    }
    log_joint = np.stack([chain.log_joint for chain in chains])
    tree = xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset(variables, coords=coords),
            "sample_stats": xr.Dataset(
                {"lp": (("chain", "draw"), log_joint)}, coords={name: coords[name] for name in ("chain", "draw")}
            ),
        }
    )
    tree, labelling = relabel(tree, prior=prior)
    draws = tree["posterior"]

    def moment(name: str, reduce: str) -> Array:
        return np.asarray(getattr(draws[name], reduce)(("chain", "draw")), dtype=np.float64)

    return MCMCPosterior(
        prior=prior,
        labels=Labels(feature_names=data.feature_names, sample_names=data.sample_names, offset=data.offset),
        loadings_mean=moment("loadings", "mean"),
        loadings_sd=moment("loadings", "std"),
        inclusion_prob=moment("inclusion", "mean"),
        activations_mean=moment("activations", "mean"),
        activations_sd=moment("activations", "std"),
        noise_precision_mean=moment("noise_precision", "mean"),
        loading_precision_mean=moment("loading_precision", "mean"),
        inclusion_rate_mean=moment("inclusion_rate", "mean") if prior.learns_inclusion else np.zeros(0),
        draws=tree,
        signal_mean=np.mean([chain.signal for chain in chains], axis=0),
        permutations=labelling.permutations,
        signs=labelling.signs,
    )
