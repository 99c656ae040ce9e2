"""Whole fits, trials, chains and streamed data on one GPU: the longer jobs of `python -m benchmarks.gpu`."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import sparsefactor as sf
from sparsefactor.data import as_data
from sparsefactor.engine.devices import keep_compiled
from sparsefactor.engine.jax_engine import JaxEngine
from sparsefactor.engine.jax_streamed import StreamedJaxEngine
from sparsefactor.gibbs.moves import moves_for
from sparsefactor.gibbs.sweep import Gibbs
from sparsefactor.kernels.jax.library import jax
from sparsefactor.model import Beta, Prior
from sparsefactor.vi.cavi import CAVI
from sparsefactor.vi.fit import options_of, search_on

from .gpu_data import simulated, timed

Tell = Callable[..., None]


def whole_fit(G: int, N: int, K: int, tell: Tell, limit: float = 110.0) -> None:
    """A default search in this process: seconds by phase, and how much of the truth it finds."""
    keep_compiled()
    data, _, F = simulated(G, N, K)
    jax.block_until_ready(data.Y)
    prior, truth, phases = Prior(n_factors=K), np.asarray(F, np.float64), {}
    programs: list[float] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: programs.append(seconds) if event.endswith("backend_compile_duration") else None
    )
    begin = time.perf_counter()

    def watch(now: Any) -> bool:
        phases[now.phase] = round(time.perf_counter() - begin, 2)
        return time.perf_counter() - begin > limit

    found = search_on(JaxEngine(data, prior), prior, options_of(callback=watch))
    tell(seconds=time.perf_counter() - begin, phases=phases, status=found.status.name)
    estimated = np.asarray(found.winner.state.columns.f_mean)
    unit = [f / np.maximum(np.linalg.norm(f, axis=1, keepdims=True), 1e-300) for f in (estimated, truth)]
    tell(worst_cosine=float(np.abs(unit[0] @ unit[1].T).max(axis=0).min()), elbo=found.winner.elbo, **found.facts)
    tell(programs=len(programs), seconds_of_compilers=sum(programs))
    memory = jax.devices()[0].memory_stats() or {}
    tell(most_memory_over_matrix=memory.get("peak_bytes_in_use", float("nan")) / (4 * G * N))


def in_fresh_processes(G: int, N: int, K: int, tell: Tell) -> None:
    """That fit in a process with nothing compiled, and in another with what the first has left on disk."""
    with tempfile.TemporaryDirectory() as cache:
        for turn in ("nothing compiled", "compiled on disk"):
            command = [sys.executable, "-m", "benchmarks.gpu", "--fit", *map(str, (G, N, K))]
            env = os.environ | {"XDG_CACHE_HOME": cache}
            begin = time.perf_counter()
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=180, check=False)
            told = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"error": done.stderr[-800:]}
            tell(**{f"{turn}: {name}": value for name, value in told.items()})
            tell(**{f"{turn}: process and data included": time.perf_counter() - begin})


def trials_together(trials: int, few: int, tell: Tell, max_iter: int = 2000) -> None:
    """Seconds of many random starts of the paper's simulation side by side, and of a few on two threads of the CPU.

    What is compiled is compiled by a few iterations first, told apart: with full fits in their place the four of them
    took a minute, most of it compilation for the CPU.
    """
    sim = sf.simulate_paper(snr=5, seed=0)
    recipe = {"n_factors": 6, "init": "random", "race": False, "accelerate": False, "tol": 1e-3}
    for name, n, own in (
        ("together", trials, {"backend": "jax", "dtype": np.float64}),
        ("cpu", few, {"backend": "cpu", "n_threads": 2}),
    ):
        for turn, iterations in (("compiled", 2), ("done", max_iter)):
            begin = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fit = sf.fit_vi(sim.X, n_trials=n, max_iter=iterations, seed=1, **recipe, **own)
            tell(**{f"{name}: {n} {turn}": time.perf_counter() - begin})
        mean = float(np.mean([trial["iterations"] for trial in fit.trial_records]))
        tell(**{f"{name} elbo": fit.elbo, f"{name} iterations": mean})


def chains(G: int, N: int, K: int, tell: Tell, n_chains: int = 4, sweeps: int = 20) -> None:
    """Milliseconds of a sweep of all chains, each in its thread, with every move and with none."""
    data, L, F = simulated(G, N, K)
    prior = Prior(n_factors=K, inclusion=Beta(1, 9))
    engine = JaxEngine(data, prior)
    for moves in ((), ("scale", "rotation", "shear", "column", "noise")):
        gibbs, begun = Gibbs(data, prior, engine, moves_for(engine, moves)), threading.Barrier(n_chains + 1)

        def chain(number: int, gibbs: Gibbs = gibbs, begun: Any = begun) -> None:
            state = gibbs.start(np.asarray(L), np.asarray(F, np.float64))
            for sweep in range(4 + sweeps):
                if sweep == 4:
                    begun.wait()
                state = gibbs.sweep(state, (1, number), sweep)[0]

        threads = [threading.Thread(target=chain, args=(number,)) for number in range(n_chains)]
        for thread in threads:
            thread.start()
        begun.wait()
        begin = time.perf_counter()
        for thread in threads:
            thread.join()
        tell(**{f"{n_chains} chains, {len(moves)} moves": 1e3 * (time.perf_counter() - begin) / sweeps})


def streamed(G: int, N: int, K: int, block: int, tell: Tell) -> None:
    """Milliseconds of an iteration and of a Gibbs sweep of data that come from the host by blocks, and beside it of
    data on the device by the same steps, and of the transfer alone."""
    on_device, L, F = simulated(G, N, K)
    prior = Prior(n_factors=K, inclusion=Beta(1, 9))
    host = as_data(np.asarray(on_device.Y).T, dtype=np.float32, center=False)
    L, F = np.asarray(L, np.float64), np.asarray(F, np.float64)

    def brought() -> Any:
        return [jax.device_put(host.Y[first : first + block]) for first in range(0, G, block)]

    transfer = timed(brought, repeats=3)[0]
    tell(transfer=transfer, gigabytes_per_second=4e-6 * G * N / transfer)
    for name, engine in (
        ("streamed", StreamedJaxEngine(host, prior, block=block)),
        ("on the device", JaxEngine(on_device, prior)),
    ):
        with engine.scope():
            cavi, gibbs = CAVI(engine.data, prior, engine, joint=True), Gibbs(engine.data, prior, engine)
            state, draw = cavi.start(L, F), gibbs.start(L, F)
            told = {
                f"iteration, {name}": timed(partial(lambda c, s: c.sweep(s).elbo, cavi, state), repeats=5)[0],
                f"Gibbs sweep, {name}": timed(lambda g=gibbs, d=draw: g.sweep(d, (1, 2), 4)[0].alpha, repeats=5)[0],
            }
        tell(**told)


def precision(trials: int, tell: Tell) -> None:
    """The paper's simulation in single precision beside double: ELBO, and inclusions at 0.5."""
    sim, fits = sf.simulate_paper(snr=5, seed=0), []
    for dtype in (np.float64, np.float32):
        prior = sf.Prior(inclusion=[0.1] * 5 + [0.9])
        fits.append(sf.fit_vi(sim.X, prior, n_trials=trials, backend="jax", dtype=dtype))
        tell(**{np.dtype(dtype).name: fits[-1].elbo})
    same = (fits[0].inclusion_prob > 0.5) == (fits[1].inclusion_prob > 0.5)
    tell(same_inclusions=statistics.fmean(same.ravel().tolist()))
