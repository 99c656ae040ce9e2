"""Times of the JAX engine on one GPU, each beside what two readings of the matrix would take: `python -m benchmarks.gpu`.

Data are made on the device. Times are medians of repeats after a first call, which is told apart as compilation.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

import sparsefactor as sf
from sparsefactor.data import as_data
from sparsefactor.engine import jax_engine
from sparsefactor.engine.cpu import CpuEngine
from sparsefactor.engine.jax_data import device_data
from sparsefactor.engine.jax_engine import JaxEngine
from sparsefactor.engine.threads import single_blas_thread
from sparsefactor.gibbs.moves import moves_for
from sparsefactor.gibbs.sweep import Gibbs
from sparsefactor.kernels.jax.library import jax, jnp, lax, x64
from sparsefactor.kernels.jax.products import PRECISIONS, mask_times
from sparsefactor.model import Beta, Prior
from sparsefactor.vi.cavi import CAVI
from sparsefactor.vi.fit import options_of, search_on
from sparsefactor.vi.modules import sorted_by, under_modules


def simulated(G: int, N: int, K: int, missing: float = 0.0, seed: int = 0, dtype: Any = jnp.float32) -> Any:
    """(data, L, F) of the model, made on the device: a tenth of the loadings, noise as strong as the signal."""
    with x64():
        keys = jax.random.split(jax.random.key(seed), 5)
        L = jax.random.normal(keys[0], (G, K), dtype) * (jax.random.uniform(keys[1], (G, K), dtype) < 0.1)
        F = jax.random.normal(keys[2], (K, N), dtype)

        @partial(jax.jit, static_argnames="rows")
        def part(L: Any, F: Any, key: Any, rows: int) -> Any:
            Y = L @ F + jax.random.normal(key, (rows, N), dtype)
            return Y - Y.mean(axis=1, keepdims=True)

        step = max(1, G // 10)
        parts = []
        for first in range(0, G, step):
            own = L[first : first + step]
            parts.append(part(own, F, jax.random.fold_in(keys[3], first), len(own)))
        Y = jnp.concatenate(parts)
        observed = None
        if missing:
            seen = jax.random.uniform(keys[4], (G, N), jnp.float32) >= missing
            Y, observed = jnp.where(seen, Y, 0.0), np.asarray(seen)
        return device_data(Y, observed), L, F


def timed(run: Callable[[], Any], repeats: int = 10, seconds: float = 3.0) -> tuple[float, float]:
    """Median milliseconds of a call, and seconds of the first."""
    begin = time.perf_counter()
    jax.block_until_ready(run())
    first = time.perf_counter() - begin
    found: list[float] = []
    while len(found) < repeats and (len(found) < 3 or sum(found) < seconds * 1e3):
        begin = time.perf_counter()
        jax.block_until_ready(run())
        found.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(found), first


def products(G: int, N: int, K: int) -> dict[str, float]:
    """Both products of a sweep in each precision, milliseconds."""
    Y = jax.random.normal(jax.random.key(0), (G, N), jnp.float32)
    F = jax.random.normal(jax.random.key(1), (N, K), jnp.float32)
    W = jax.random.normal(jax.random.key(2), (K, G), jnp.float32)
    some = np.asarray(Y[:64], np.float64) @ np.asarray(F, np.float64)
    found = {"read": timed(lambda: jnp.sum(Y))[0]}
    for name, precision in PRECISIONS.items():
        with suppress(Exception):
            right = jax.jit(lambda Y, F, p=precision: lax.dot(Y, F, precision=p))
            left = jax.jit(lambda W, Y, p=precision: lax.dot(W, Y, precision=p))
            error = np.linalg.norm(np.asarray(right(Y, F)[:64], np.float64) - some) / np.linalg.norm(some)
            found[f"Y F {name}"] = timed(partial(right, Y, F))[0]
            found[f"L'Y {name}"] = timed(partial(left, W, Y))[0]
            found[f"error {name}"] = float(error)
    return found


def vi_sweep(G: int, N: int, K: int, missing: float = 0.0, modules: int = 1, joint: bool = True) -> dict[str, float]:
    """Milliseconds of an iteration, and of its two halves."""
    data, _, _ = simulated(G, N, K, missing)
    prior = Prior(n_factors=K, inclusion=Beta(1, 9))
    engine = JaxEngine(data, prior)
    cavi = CAVI(data, prior, engine, joint=joint)
    with x64():
        rng = np.random.default_rng(0)
        state = cavi.start(0.1 * rng.standard_normal((G, K)), rng.standard_normal((K, N)))
        if modules > 1:
            plain, cavi = cavi, under_modules(cavi, modules)
            state = sorted_by(cavi, plain.sweep(state), jnp.asarray(rng.dirichlet(np.ones(modules), G)))
        begin = time.perf_counter()
        state = cavi.sweep(state, rescale=True)
        first = time.perf_counter() - begin
        for _ in range(3):
            state = cavi.sweep(state, rescale=True)
        columns, scale = cavi.next_columns(state, rescale=True)
        whole, _ = timed(lambda: cavi.sweep(state, rescale=True).elbo)
        step, _ = timed(lambda: cavi.next_columns(state, rescale=True))
        rows, _ = timed(lambda: cavi.finish(state.rows, columns, scale).elbo)
        told = {"ms": whole, "columns": step, "rows": rows, "compile_s": first, "elbo": state.elbo}
        if missing:
            mask, X = engine.problem.mask[:64], rng.standard_normal((N, 8))
            exact = (np.asarray(mask, np.float64) @ X).T
            error = np.asarray(jax.jit(partial(mask_times, dtype=jnp.float32))(mask, X)) - exact
            told["mask_error"] = float(np.linalg.norm(error) / np.linalg.norm(exact))
    return told


def gibbs_sweep(G: int, N: int, K: int, moves: bool = False, dtype: Any = jnp.float32) -> dict[str, float]:
    """Milliseconds of a sweep, of its row pass, and of a sweep with all moves."""
    data, L, F = simulated(G, N, K, dtype=dtype)
    prior = Prior(n_factors=K, inclusion=Beta(1, 9))
    engine = JaxEngine(data, prior)
    gibbs = Gibbs(data, prior, engine)
    state = gibbs.start(np.asarray(L), np.asarray(F, np.float64))
    begin = time.perf_counter()
    state = gibbs.sweep(state, (1, 2), 1)[0]
    first = time.perf_counter() - begin
    message, noise = gibbs.message(state), engine.row_noise((1, 2), 3)
    told = {"kernel": engine.kind.kernel, "compile_s": first}
    told["ms"] = timed(lambda: gibbs.sweep(state, (1, 2), 4)[0].rows.L)[0]
    told["rows"] = timed(lambda: engine.gibbs_row_pass(state.rows, message, noise)[0].L)[0]
    with engine.scope():
        told["draw"] = timed(lambda: gibbs.draw(state, (1, 2), 4)[0].rows.L)[0]
    if moves:
        for move in moves_for(engine):
            one = Gibbs(data, prior, engine, [move])
            told[f"with {move.name}"] = timed(lambda one=one: one.sweep(state, (1, 2), 4)[0].rows.L, repeats=5)[0]
    return told


def sweeps_of(engine: Any, L: Any, F: Any) -> tuple[float, float]:
    """Milliseconds of an iteration of VI and of a Gibbs sweep, a few sweeps after the truth."""
    data, prior, (L, F) = engine.data, engine.prior, (values.astype(np.float64) for values in (L, F))
    cavi, gibbs = CAVI(data, prior, engine, joint=True), Gibbs(data, prior, engine)
    state, draw = cavi.start(L, F), gibbs.start(L, F)
    for sweep in range(3):
        state, draw = cavi.sweep(state, rescale=True), gibbs.sweep(draw, (1, 2), sweep)[0]
    one, _ = timed(lambda: cavi.sweep(state, rescale=True).elbo)
    return one, timed(lambda: gibbs.sweep(draw, (1, 2), 4)[0].alpha)[0]


def cpu_times(G: int, N: int, K: int) -> dict[str, float]:
    """Milliseconds of an iteration and of a Gibbs sweep here and on the CPU engine with every core, in turn."""
    data, L, F = simulated(G, N, K)
    prior = Prior(n_factors=K, inclusion=Beta(1, 9))
    host = as_data(np.asarray(data.Y).T.astype(np.float32), dtype=np.float32)
    told = {}
    for name, engine in (("GPU", JaxEngine(data, prior)), ("CPU", CpuEngine(host, prior))):
        with engine.scope(), single_blas_thread():
            told[f"CAVI {name}"], told[f"Gibbs {name}"] = sweeps_of(engine, np.asarray(L), np.asarray(F))
    told["CAVI ratio"], told["Gibbs ratio"] = (told[f"{m} CPU"] / told[f"{m} GPU"] for m in ("CAVI", "Gibbs"))
    return told


def together(trials: int, few: int, max_iter: int = 2000) -> dict[str, Any]:
    """Seconds of many random starts of the paper's simulation side by side, and of a few on two threads of the CPU."""
    sim, told = sf.simulate_paper(snr=5, seed=0), {}
    recipe = {"n_factors": 6, "init": "random", "race": False, "accelerate": False, "max_iter": max_iter, "tol": 1e-3}
    for name, n, own in (
        ("first", trials, {"backend": "jax", "dtype": np.float64}),
        ("again", trials, {"backend": "jax", "dtype": np.float64, "seed": 1}),
        ("cpu first", few, {"backend": "cpu", "n_threads": 2}),
        ("cpu", few, {"backend": "cpu", "n_threads": 2, "seed": 1}),
    ):
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit = sf.fit_vi(sim.X, n_trials=n, **recipe, **own)
        told[f"{name}: {n}"] = time.perf_counter() - begin
        told[f"{name} elbo"] = fit.elbo
        told[f"{name} iterations"] = float(np.mean([trial["iterations"] for trial in fit.trial_records]))
    return told


def whole_fit(G: int, N: int, K: int, limit: float = 48.0) -> dict[str, Any]:
    """Seconds of a default search, and how much of the truth it finds; and again, when everything is compiled."""
    data, _, F = simulated(G, N, K)
    jax.block_until_ready(data.Y)
    prior, told, truth = Prior(n_factors=K), {}, np.asarray(F, np.float64)
    for turn in ("first", "again"):
        phases: dict[str, float] = {}
        begin = time.perf_counter()

        def watch(now: Any, phases: Any = phases, begin: float = begin) -> bool:
            phases[now.phase] = round(time.perf_counter() - begin, 2)
            return time.perf_counter() - begin > limit

        found = search_on(JaxEngine(data, prior), prior, options_of(callback=watch))
        told[f"seconds {turn}"] = time.perf_counter() - begin
        estimated = np.asarray(found.winner.state.columns.f_mean)
        unit = [f / np.maximum(np.linalg.norm(f, axis=1, keepdims=True), 1e-300) for f in (estimated, truth)]
        cosines = np.abs(unit[0] @ unit[1].T).max(axis=0)
        told |= {f"status {turn}": found.status.name, f"phases {turn}": phases}
        told |= {"elbo": found.winner.elbo, "worst_cosine": float(cosines.min()), **found.told}
        told["iterations"] = sum(trial.iterations for trial in found.trials)
        print(turn, told, flush=True)
    return told


def precision(trials: int) -> dict[str, Any]:
    """The paper's simulation in single precision beside double: ELBO, and inclusions at 0.5."""
    sim = sf.simulate_paper(snr=5, seed=0)
    fits = [
        sf.fit_vi(sim.X, sf.Prior(inclusion=[0.1] * 5 + [0.9]), n_trials=trials, backend="jax", dtype=dtype)
        for dtype in (np.float64, np.float32)
    ]
    same = (fits[0].inclusion_prob > 0.5) == (fits[1].inclusion_prob > 0.5)
    return {"float64": fits[0].elbo, "float32": fits[1].elbo, "same_inclusions": float(same.mean())}


JOBS: dict[str, Callable[[], dict[str, Any]]] = {
    "CAVI 20,000 x 100,000, K 50": lambda: vi_sweep(20_000, 100_000, 50),
    "CAVI 20,000 x 10,000, K 50": lambda: vi_sweep(20_000, 10_000, 50),
    "CAVI 20,000 x 10,000, K 50, 8 modules": lambda: vi_sweep(20_000, 10_000, 50, modules=8),
    "CAVI 20,000 x 10,000, K 50, 10 % missing": lambda: vi_sweep(20_000, 10_000, 50, 0.1),
    "Gibbs 16,069 x 44, K 26": lambda: gibbs_sweep(16_069, 44, 26, moves=True),
    "Gibbs 200,000 x 500, K 30": lambda: gibbs_sweep(200_000, 500, 30, moves=True),
    "100 trials": lambda: together(100, 10),
    "fit 20,000 x 100,000, K 50": lambda: whole_fit(20_000, 100_000, 50),
    "precision, the paper's simulation": lambda: precision(2),
    "CAVI 20,000 x 2,000, K 30": lambda: vi_sweep(20_000, 2_000, 30),
    "CAVI 20,000 x 2,000, K 30, 10 % missing": lambda: vi_sweep(20_000, 2_000, 30, 0.1),
    "CAVI 5,000 x 500, K 10": lambda: vi_sweep(5_000, 500, 10),
    "products 20,000 x 100,000, K 50": lambda: products(20_000, 100_000, 50),
    **{
        f"crossing {G:,} x {N:,}, K {K}": partial(cpu_times, G, N, K)
        for G, N, K in (
            (800, 100, 6),
            (2_000, 300, 10),
            (5_000, 500, 10),
            (16_069, 44, 26),
            (10_000, 1_000, 20),
            (20_000, 2_000, 30),
            (20_000, 10_000, 50),
        )
    },
}
SMALL: dict[str, Callable[[], dict[str, Any]]] = {
    "products": lambda: products(200, 300, 5),
    "CAVI": lambda: vi_sweep(200, 100, 5),
    "modules": lambda: vi_sweep(200, 100, 5, modules=3),
    "missing": lambda: vi_sweep(200, 100, 5, 0.1),
    "Gibbs": lambda: gibbs_sweep(200, 100, 5, moves=True),
    "fit": lambda: whole_fit(300, 200, 4),
    "trials": lambda: together(5, 2, 50),
    "crossing": lambda: cpu_times(200, 100, 5),
    "precision": lambda: precision(1),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="jobs whose name has one of these words")
    parser.add_argument("--small", action="store_true", help="small sizes, to try the script")
    parser.add_argument("--precision", help="of products, in place of the engine's own")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no job after so many")
    parser.add_argument("--json", help="file to write")
    args = parser.parse_args()
    if args.precision:
        jax_engine.PRECISION = args.precision
    jobs = SMALL if args.small else JOBS
    print(jax.devices()[0].device_kind, "JAX", jax.__version__, "products:", jax_engine.PRECISION, flush=True)
    results, begin = {}, time.perf_counter()
    for name, job in jobs.items():
        if (args.only and not any(word in name for word in args.only)) or time.perf_counter() - begin > args.seconds:
            continue
        try:
            results[name] = job()
        except Exception as problem:  # one job that fails must not lose the others
            results[name] = {"error": f"{type(problem).__name__}: {problem}"[:500]}
        print(f"{time.perf_counter() - begin:6.1f} s  {name}")
        for key, value in results[name].items():
            print(
                f"            {key:24s} {value:.4g}" if isinstance(value, float) else f"            {key:24s} {value}",
                flush=True,
            )
    if args.json:
        with open(args.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
