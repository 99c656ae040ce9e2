"""`warmup`: compile the kernels of default fits ahead of their first use."""

from __future__ import annotations

import multiprocessing
import os
import queue
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from typing import Annotated, Any

import numpy as np
import typer

import sparsefactor as sf

from ..notices import listening
from ..progress import Bars
from .app import command
from .console import answer, note, settings, under_way

# Each process runs its jobs in order; what both need is compiled by both. The larger tables have their rows in blocks.
JOBS: tuple[tuple[tuple[str, str, int], ...], ...] = (
    (("fit", "complete", 20), ("fit", "missing", 20), ("fit", "complete", 2000), ("fit", "missing", 2000)),
    (("sample", "complete", 20), ("sample", "missing", 20), ("sample", "complete", 2000)),
)
LOOK_SECONDS = 0.1


@command("sparsefactor warmup")
def warmup(
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes (default: 2, or 1 on one core).")] = None,
) -> None:
    """Compile the kernels of fit and sample, for complete tables and tables with missing values."""
    begin = time.monotonic()
    context = multiprocessing.get_context("spawn")  # a forked child would hold locks of threads it does not have
    with (
        under_way("Compiling the kernels of fit and sample") as shown,
        context.Manager() as manager,
        ProcessPoolExecutor(jobs or min(len(JOBS), os.cpu_count() or 1), mp_context=context) as pool,
        Bars() as bars,
    ):
        said = manager.Queue()
        futures = [pool.submit(compile_jobs, number, said) for number in range(len(JOBS))]
        while not all(future.done() for future in futures) or not said.empty():
            try:
                job, done, total, seconds = said.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                continue
            if shown:
                bars.show(job, f"{done} of {total} kernels, {seconds:.0f} s", done, total)
            elif done == total and not settings.quiet:
                note(f"{job}: {total} kernels, {seconds:.0f} s")
        for future in futures:
            future.result()
    seconds = time.monotonic() - begin
    answer(f"Kernels are compiled and stored on disk ({seconds:.0f} s).", {"seconds": seconds})


def compile_jobs(number: int, said: Any) -> None:
    """Run the jobs of one process, telling how far compilation is."""
    for method, table, n_features in JOBS[number]:
        name = f"{method}, {table} table of {n_features} features"

        def tell(task: str, done: int, total: int, seconds: float, name: str = name) -> None:
            said.put((name, done, total, seconds))

        with listening(lambda text: None, tell), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of fits that are too short
            run_job(method, table, n_features)


def run_job(method: str, table: str, n_features: int) -> None:
    """A short fit or run of a simulated table."""
    missing = 0.05 if table == "missing" else 0.0
    X = sf.simulate(n_features=n_features, n_samples=120, inclusion=[0.3] * 4, snr=3, missing=missing, seed=0).X
    if n_features > 100:
        X = np.concatenate([X, X], axis=0)
    if method == "fit":
        sf.fit_vi(X, n_factors=4, max_iter=50, progress=False)
    else:
        sf.sample(X, n_factors=4, n_chains=1, n_warmup=20, n_draws=20, init="random", progress=False)
