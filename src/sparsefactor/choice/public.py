"""Which prior, and how many factors: priors compared by how well they predict held-out entries, as in the paper.

A fit sees all but a share of the entries and is judged by these; several masks show how certain the comparison is.
Within a mask, fits may start from one another (`chain.py`), never between masks, where a
start has seen entries that are held out now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..checks import checked_choice, checked_count, checked_flag, checked_share, seed_number
from ..executors import check_client
from ..model import Beta, Prior
from ..notices import warn
from ..progress import Bars, is_shown
from ..start import Start
from .cache import all_values, digest
from .chain import Chain
from .comparison import Comparison, tabulated
from .hidden import Laid, Mask, drawn
from .makers import fits_of
from .masks import METHODS, mean_error

Told = Callable[[int, int, str], None]


def compare(
    X: Any,
    priors: Mapping[str, Prior],
    *,
    n_masks: int = 5,
    share: float = 0.1,
    inference: str = "vi",
    seed: int | np.random.Generator | None = 0,
    n_jobs: int | None = None,
    warm_start: bool = False,
    path: str | PathLike[str] | None = None,
    progress: Told | bool | None = None,
    client: Any = None,
    **options: Any,
) -> Comparison:
    """Compare priors by how well they predict entries held out.

    Parameters
    ----------
    X : (n_samples, n_features) array or frame
        NaN where missing. Or what is not in memory, as `fit_vi` takes it: it is laid out in a file once, and so is what
        a mask leaves, for as long as a fit looks at it.
    priors : dict of name to Prior
    n_masks : int
        Fits of each prior, each with another share of the entries held out; the same for every prior. At least 2.
    share : float
        Of the observed entries that are held out.
    inference : "vi" or "mcmc"
    seed : int, Generator or None
        Of the masks, and of the fits.
    n_jobs : int, optional
        Fits at the same time; None for every core, or for one after another where X is not in memory.
    warm_start : bool
        Under each mask, fit the prior with the most factors first, and give each of the others a further restart from
        the solution before it, with half as many restarts of its own. Ignored with an `init` of your own, and with
        inference="mcmc".
    path : folder, optional
        A cache of finished fits, which a call with the same data, priors and settings does not repeat.
    progress : bool, or function of (fits done, fits in all, what was done last), optional
        Whether a progress bar is shown, by default on terminals and in notebooks; or a function called instead.
    client : dask.distributed.Client, optional
        Whose workers make the fits, each a whole one; n_jobs is then by default the number of their threads. What is
        not in memory and larger than 64 MB is read by all of them, and they make one fit after another.
    **options
        Of `fit_vi` or `sample`. Data are centred once, by means of all observed entries (center=False: not at all):
        means of what a mask leaves would differ from feature to feature by what it hides, as if by a further factor.

    Returns
    -------
    Comparison
        With a warning where the choice has the largest number of factors offered and uses all of them.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.5], snr=5, seed=0)
    >>> priors = {name: sf.Prior(n_factors=n) for name, n in {"one": 1, "two": 2, "three": 3}.items()}
    >>> sf.compare(sim.X, priors, n_masks=2, n_trials=2).choice
    'two'
    """
    _check(priors, inference, n_masks, share, options)
    if client is not None:
        check_client(client)
    laid, source = Laid.of(X)
    seed = seed_number(seed)
    masks = drawn(laid, n_masks, share, seed)
    center = checked_flag("center", options.get("center", True))
    options = {"seed": seed, **options, "center": False}
    folder = None if path is None else Path(path)
    who = laid.samples.tolist() if options.get("covariates") is not None else None
    base = "" if folder is None else digest(laid, seed, share, inference, center, all_values(options), who)
    laid = laid.centred() if center else laid
    fit, at_once = fits_of(laid, source, client, inference)

    def chain(names: list[str], mask: Mask) -> Chain:
        def judge(prior: Prior, start: Start | None) -> tuple[dict[str, Any], Start]:
            return fit(prior, mask, started(options, prior, start))

        made = Chain(names, [priors[name] for name in names], mask.number, judge)
        if folder is not None:
            made.cache_in(folder, base)
        return made

    warm = checked_flag("warm_start", warm_start) and inference == "vi" and "init" not in options
    most_first = sorted(priors, key=lambda name: -priors[name].K)
    chains = [chain(names, mask) for mask in masks for names in ([most_first] if warm else [[name] for name in priors])]
    with reporter(progress) as report:
        found = run(chains, n_jobs or at_once, report)
    runs = pd.DataFrame(
        [{"prior": name, "mask": mask.number + 1, **found[name, mask.number]} for mask in masks for name in priors]
    )
    baseline = float(np.mean([mean_error(laid, mask) for mask in masks]))
    comparison = Comparison(tabulated(runs, priors), runs, baseline)
    if comparison.advice:
        warn(comparison.advice, UserWarning)
    return comparison


@contextmanager
def reporter(progress: Told | bool | None) -> Iterator[Told | None]:
    """What reports each finished fit: the caller's function, a progress bar, or None."""
    if callable(progress):
        yield progress
    elif progress is not None and not isinstance(progress, bool):
        raise TypeError(f"progress must be True, False, None or a function; got {progress!r}; leave it out")
    elif not is_shown(progress):
        yield None
    else:
        with Bars() as bars:
            yield lambda done, total, last: bars.show("Fits", f"{done} of {total}; {last}", done, total)


def run(chains: list[Chain], n_jobs: int, progress: Told | None) -> dict[tuple[str, int], dict[str, Any]]:
    """All fits of all chains, by prior and mask; as many chains at a time as there are jobs."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    total = sum(len(chain.names) for chain in chains)
    with ThreadPoolExecutor(n_jobs) as pool:
        pending: dict[Future[Any], Chain] = {pool.submit(chain.step): chain for chain in chains}
        try:
            while pending:
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
                    chain = pending.pop(future)
                    name, line = future.result()
                    found[name, chain.mask] = line
                    if chain.done < len(chain.names):
                        pending[pool.submit(chain.step)] = chain
                    if progress is not None:
                        progress(len(found), total, f"{name}, mask {chain.mask + 1}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return found


def started(options: dict[str, Any], prior: Prior, start: Start | None) -> dict[str, Any]:
    """The options of a fit that also starts from where another ended: from its strongest factors."""
    if start is None or start.L.shape[1] < prior.n_factors:  # pruned
        return options
    K = prior.n_factors
    trials = options.get("n_trials", "auto")
    own = start._replace(L=start.L[:, :K], F=start.F[:K])
    return options | {"init": [own], "n_trials": trials if isinstance(trials, str) else max(1, trials // 2)}


def choose_n_factors(
    X: Any, candidates: Iterable[int] = range(1, 11), *, prior: Prior | None = None, **settings: Any
) -> Comparison:
    """Choose the number of factors that predicts held-out entries best; see `compare`, whose settings these are.

    If inclusion is learnt there is a second way: fit once with more factors than needed, and count those that are not
    empty.

    Parameters
    ----------
    X : (n_samples, n_features) array or frame
    candidates : numbers of factors
    prior : Prior, optional
        What else is assumed; its own number of factors does not matter. By default inclusion is learnt.
    **settings
        Of `compare`.

    Returns
    -------
    Comparison
        `.n_factors` is the choice; `.table` and `.plot()` show how clear it is.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.5], snr=5, seed=0)
    >>> sf.choose_n_factors(sim.X, [1, 2, 3], n_masks=2, n_trials=2).n_factors
    2
    """
    base = Prior(n_factors=1, inclusion=Beta(1, 1)) if prior is None else prior
    if not base.learns_inclusion and base.inclusion.ndim:
        raise ValueError(
            "inclusion must be one number or a Beta where the number of factors is open; got a value for each factor; "
            "pass e.g. Beta(1, 1), or compare priors of your own"
        )
    if not isinstance(candidates, Iterable) or isinstance(candidates, str) or not (listed := list(candidates)):
        raise TypeError(f"candidates must be numbers of factors; got {candidates!r}; pass e.g. range(1, 11)")
    counts = [checked_count("a candidate", k) for k in listed]
    return compare(X, {str(k): replace(base, n_factors=k) for k in counts}, **settings)


def _check(priors: Any, inference: str, n_masks: Any, share: Any, options: dict[str, Any]) -> None:
    if not isinstance(priors, Mapping) or not priors or not all(isinstance(p, Prior) for p in priors.values()):
        raise TypeError(
            f"priors must be a dict of names to Prior; got {priors!r}; pass e.g. "
            '{"sparse": Prior(n_factors=6), "more": Prior(n_factors=9)}'
        )
    checked_choice("inference", inference, METHODS)
    checked_count("n_masks", n_masks, 2)  # one mask has no spread
    checked_share("share", share, "0.1")
    taken = {"prior", "X", "n_threads", "path", "resume", "callback"} & set(options)
    if taken:
        raise ValueError(f"{taken.pop()} cannot be an option of the fits, which compare sets itself; leave it out")
