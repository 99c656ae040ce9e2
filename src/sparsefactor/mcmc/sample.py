"""sample: several chains of the collapsed Gibbs sampler, relabelled into one posterior."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ..data import Data, as_data
from ..engine import build_kernels
from ..model import Prior
from ..posterior import Labels, MCMCPosterior
from ..start import INITS, Start, starts
from ..storage.draws import PRECISIONS, Layout, MemoryDraws, Sink, ZarrDraws
from ..storage.result import load_run, save_result
from ..vi.fit import ConvergenceWarning, fit_vi
from . import run_folder
from .chain import Chain, Plan
from .dispersed import dispersed_start, optima
from .finish import posterior
from .moves import MOVES
from .progress import Callback, Display
from .run_folder import RunFolder
from .runner import run_chains, threads_per_chain
from .state import Gibbs

logger = logging.getLogger("sparsefactor")

CHAIN_INITS = (*INITS, "optima")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The settings of sample, checked once."""

    n_chains: int
    n_warmup: int
    n_draws: int
    thin: int
    init: str | Start
    moves: tuple[str, ...]
    temper: bool
    seed: int
    backend: str
    n_jobs: int | None
    progress: bool | Callback | None
    path: Path | None
    checkpoint_seconds: float
    precision: str

    def __post_init__(self) -> None:
        for name, least in (("n_chains", 1), ("n_warmup", 0), ("n_draws", 1), ("thin", 1), ("seed", 0), ("n_jobs", 1)):
            value = getattr(self, name)
            if name == "n_jobs" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}; raise it")
        if not isinstance(self.init, Start) and self.init not in CHAIN_INITS:
            raise ValueError(f"init must be one of {CHAIN_INITS} or a Start; got {self.init!r}; choose one of them")
        unknown = [name for name in self.moves if name not in MOVES]
        if unknown:
            raise ValueError(f"moves must be among {tuple(MOVES)}; got {unknown[0]!r}; leave it out")
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {PRECISIONS}; got {self.precision!r}; choose one of them")
        if not (isinstance(self.checkpoint_seconds, int | float) and self.checkpoint_seconds >= 0):
            raise ValueError(
                f"checkpoint_seconds must be zero or positive; got {self.checkpoint_seconds!r}; the default suits most"
            )
        if not (self.progress is None or isinstance(self.progress, bool) or callable(self.progress)):
            raise TypeError(
                f"progress must be True, False, None or a function; got {self.progress!r}; pass one of them"
            )

    @property
    def plan(self) -> Plan:
        return Plan(n_warmup=self.n_warmup, n_draws=self.n_draws, thin=self.thin, seed=self.seed, temper=self.temper)

    def settings(self, data: Data, prior: Prior, engine: str) -> dict[str, Any]:
        """What decides the draws, apart from their number."""
        names = ("n_chains", "n_warmup", "thin", "moves", "temper", "seed", "init")
        chosen = {name: getattr(self, name) for name in names}
        return run_folder.settings_of(data, prior, engine, self.precision, **chosen)


def sample(
    X: Any,
    prior: Prior,
    *,
    n_chains: int = 4,
    n_warmup: int = 500,
    n_draws: int = 1000,
    thin: int = 1,
    init: str | Start = "auto",
    moves: Sequence[str] = tuple(MOVES),
    temper: bool | None = None,
    center: bool = False,
    seed: int = 0,
    backend: str = "auto",
    n_jobs: int | None = None,
    progress: bool | Callback | None = None,
    path: str | PathLike[str] | None = None,
    resume: str | PathLike[str] | None = None,
    checkpoint_seconds: float = 30.0,
    precision: str = "single",
) -> MCMCPosterior:
    """Draw from the posterior of the sparse factor model given X by collapsed Gibbs sampling.

    X: (n_samples, n_features), NaN where missing. Each chain makes n_warmup sweeps, then n_draws * thin, of which
    every thin-th is kept. The draws of all chains are relabelled into one labelling (see `relabel`); the sampler's
    own can be recovered.

    init: "auto" (dispersed around the best VI optimum), "optima" (each chain at a VI optimum of its own, the honest
        test for several modes), or a start by name ("random" is the paper's).
    moves: extra steps that leave the posterior invariant; () is the paper's sampler.
    temper: switch the likelihood on gradually during warm-up; None does so for random starts only.

    n_jobs: chains at the same time (None: every core); the draws do not depend on it, to the bit.
    progress: None shows it where standard error is a terminal; True, False; or a function of a list of ChainProgress.
    path: a folder to which draws go as they are made, so that memory does not grow with them. A call with the path
        and settings of an earlier one goes on with it, whether it was killed, interrupted, or done (with larger
        n_draws), and ends with the draws of a run that was never stopped. resume: a path that must hold a run.
    checkpoint_seconds: what a kill may cost, where there is a path.
    precision: of loadings and noise precisions on disk; "double" keeps every bit at nearly twice the size.
    """
    options = Options(
        n_chains=n_chains,
        n_warmup=n_warmup,
        n_draws=n_draws,
        thin=thin,
        init=init,
        moves=tuple(moves),
        temper=init == "random" if temper is None else bool(temper),
        seed=seed,
        backend=backend,
        n_jobs=n_jobs,
        progress=progress,
        path=_chosen_path(path, resume),
        checkpoint_seconds=checkpoint_seconds,
        precision=precision,
    )
    data = as_data(X, center=center)
    prior.check_fits(data)
    kernels = build_kernels(data, prior, backend, threads_per_chain(n_jobs, n_chains))
    gibbs = Gibbs(data, prior, kernels, [MOVES[name]() for name in options.moves])
    labels = Labels(feature_names=data.feature_names, sample_names=data.sample_names, offset=data.offset)
    layout = Layout(prior, labels)
    if options.path is None:
        sink = MemoryDraws(layout, n_chains, n_draws)
        chains = _started(gibbs, options, sink, chain_starts(data, prior, options))
        run_chains(chains, n_jobs, Display(chains, progress), None, checkpoint_seconds)
        return posterior(prior, labels, sink, chains)
    return _sample_to(options.path, gibbs, layout, labels, options)


def _sample_to(path: Path, gibbs: Gibbs, layout: Layout, labels: Labels, options: Options) -> MCMCPosterior:
    """Begin the run at `path`, or go on with it."""
    settings = options.settings(gibbs.data, gibbs.prior, type(gibbs.kernels).__name__)
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        begin = list(chain_starts(gibbs.data, gibbs.prior, options))

        def save_starts(run: RunFolder) -> None:
            for chain in _started(
                gibbs, options, ZarrDraws(layout, run.path, options.n_chains, options.n_draws), begin
            ):
                chain.save(run.checkpoints, run.token)

        run_folder.create(path, layout, options.n_draws, settings, save_starts)
    run = run_folder.reopen(path, options.n_draws, settings)
    with run_folder.sole_writer(path):
        if run.result.exists() and run_folder.n_draws_of(run) == options.n_draws:
            try:
                return load_run(path)
            except ValueError as problem:
                logger.warning("the result of a run is made again from its draws: %s", problem)
        run_folder.extend(run, options.n_draws, settings)
        sink = ZarrDraws(layout, path, options.n_chains, options.n_draws)
        chains = [Chain(number, gibbs, options.plan, sink) for number in range(options.n_chains)]
        for chain in chains:
            chain.restore(run.latest(chain.number))
            if chain.sweep:
                logger.info("chain %d: goes on at sweep %d of %d", chain.number, chain.sweep, chain.plan.n_sweeps)
        run_chains(chains, options.n_jobs, Display(chains, options.progress), run, options.checkpoint_seconds)
        result = posterior(gibbs.prior, labels, sink, chains)
        save_result(result, path)
    return result


def _started(gibbs: Gibbs, options: Options, sink: Sink, begin: Iterable[Start]) -> list[Chain]:
    """Chains before their first sweep."""
    chains = []
    for number, start in enumerate(begin):
        chain = Chain(number, gibbs, options.plan, sink)
        chain.state = gibbs.start(start.L, start.F)
        chains.append(chain)
    return chains


def _chosen_path(path: str | PathLike[str] | None, resume: str | PathLike[str] | None) -> Path | None:
    if resume is None:
        return None if path is None else Path(path)
    if path is not None and Path(path) != Path(resume):
        raise ValueError(f"path and resume must agree; got {str(path)!r} and {str(resume)!r}; pass one of them")
    if not Path(resume).exists():
        raise FileNotFoundError(
            f"resume must hold a run; {str(resume)!r} does not exist; pass path= to begin one there"
        )
    return Path(resume)


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
    elif options.init == "optima":
        yield from optima(data, prior, options.n_chains, options.seed, options.backend)
    else:
        yield from starts(data, prior, options.init, options.n_chains, options.seed)
