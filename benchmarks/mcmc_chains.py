"""Chains side by side: threads of one process against processes of their own.

    python -m benchmarks.mcmc_chains          # on an otherwise idle machine

Prints, for each size, sweeps per second of one chain, of two on threads, and of two in processes (start-up apart).
"""

from __future__ import annotations

import json
import multiprocessing
import threading
import time
from typing import Any

import numpy as np

import sparsefactor as sf
from sparsefactor.data import as_data
from sparsefactor.engine import build_engine
from sparsefactor.engine.threads import single_blas_thread
from sparsefactor.gibbs.moves import ScaleMove
from sparsefactor.gibbs.sweep import Gibbs, GibbsState
from sparsefactor.kernels.noise import stream_key

SIZES = {"800 x 100, K = 6": 2000, "1000 x 44, K = 26": 1000}  # and sweeps to make
N_CHAINS = 2


def problem(size: str) -> tuple[Gibbs, GibbsState]:
    if size.startswith("800"):
        sim, prior = sf.simulate_paper(snr=5, seed=0), sf.Prior.paper(inclusion=[0.1] * 5 + [0.9])
    else:
        sim = sf.simulate(n_features=1000, n_samples=44, inclusion=[0.1] * 26, snr=2, seed=0)
        prior = sf.Prior(n_factors=26, inclusion=0.1)
    data = as_data(sim.X)
    gibbs = Gibbs(data, prior, build_engine(data, prior, "cpu", 1), [ScaleMove()])
    return gibbs, gibbs.start(sim.loadings, np.ascontiguousarray(sim.activations.T))


def sweep(gibbs: Gibbs, state: GibbsState, chain: int, n: int) -> None:
    key = stream_key(0, chain)
    for number in range(n):
        state, _ = gibbs.sweep(state, key, number)


def in_process(size: str, chain: int, n: int, barrier: Any, seconds: Any) -> None:
    gibbs, state = problem(size)
    with single_blas_thread():
        sweep(gibbs, state, chain, 20)
        barrier.wait()
        start = time.perf_counter()
        sweep(gibbs, state, chain, n)
        seconds.put(time.perf_counter() - start)


def compare(size: str, n: int) -> dict[str, Any]:
    gibbs, state = problem(size)
    with single_blas_thread():
        sweep(gibbs, state, 0, 20)
        start = time.perf_counter()
        sweep(gibbs, state, 0, n)
        one = time.perf_counter() - start
        threads = [threading.Thread(target=sweep, args=(gibbs, state, chain, n)) for chain in range(N_CHAINS)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        together = time.perf_counter() - start
    context = multiprocessing.get_context("spawn")
    seconds, barrier = context.Queue(), context.Barrier(N_CHAINS)
    processes = [
        context.Process(target=in_process, args=(size, chain, n, barrier, seconds)) for chain in range(N_CHAINS)
    ]
    start = time.perf_counter()
    for process in processes:
        process.start()
    apart = max(seconds.get() for _ in processes)
    for process in processes:
        process.join()
    return {
        "size": size,
        "one_chain": round(n / one),
        "two_on_threads": round(N_CHAINS * n / together),
        "two_in_processes": round(N_CHAINS * n / apart),
        "process_start_up_s": round(time.perf_counter() - start - apart, 2),
    }


if __name__ == "__main__":
    for size, n in SIZES.items():
        print(json.dumps(compare(size, n)))
