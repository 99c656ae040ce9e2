"""Times of the JAX engine on one GPU, each beside what two readings of the matrix would take: `python -m benchmarks.gpu`.

Data are made on the device. Times are medians of repeats after a first call, which is told apart as compilation.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from sparsefactor.engine import jax_engine
from sparsefactor.engine.jax_data import device_data
from sparsefactor.engine.jax_engine import JaxEngine
from sparsefactor.gibbs.moves import moves_for
from sparsefactor.gibbs.sweep import Gibbs
from sparsefactor.kernels.contract import RowStream
from sparsefactor.kernels.jax.gibbs_rows import draw_loadings
from sparsefactor.kernels.jax.library import jax, jnp, lax, x64
from sparsefactor.kernels.jax.noise import normals, standard_gamma
from sparsefactor.kernels.jax.products import PRECISIONS
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
    with suppress(Exception):  # the matrix as two bfloat16 parts, which take the same room
        high = Y.astype(jnp.bfloat16)
        low = (Y - high.astype(jnp.float32)).astype(jnp.bfloat16)

        def split(X: Any) -> Any:
            parts, rest = [], X
            for _ in range(3):
                parts.append(rest.astype(jnp.bfloat16))
                rest = rest - parts[-1].astype(jnp.float32)
            return parts

        @jax.jit
        def right_split(high: Any, low: Any, F: Any) -> Any:
            a, b, c = split(F)
            one = lax.dot(high, jnp.concatenate([a, b, c], axis=1), preferred_element_type=jnp.float32)
            two = lax.dot(low, jnp.concatenate([a, b], axis=1), preferred_element_type=jnp.float32)
            return one[:, :K] + one[:, K : 2 * K] + one[:, 2 * K :] + two[:, :K] + two[:, K:]

        @jax.jit
        def left_split(W: Any, high: Any, low: Any) -> Any:
            a, b, c = split(W)
            one = lax.dot(jnp.concatenate([a, b, c]), high, preferred_element_type=jnp.float32)
            two = lax.dot(jnp.concatenate([a, b]), low, preferred_element_type=jnp.float32)
            return one[:K] + one[K : 2 * K] + one[2 * K :] + two[:K] + two[K:]

        error = np.linalg.norm(np.asarray(right_split(high, low, F)[:64], np.float64) - some) / np.linalg.norm(some)
        found |= {"Y F split": timed(lambda: right_split(high, low, F))[0]}
        found |= {"L'Y split": timed(lambda: left_split(W, high, low))[0], "error split": float(error)}
    return found


def gibbs_pieces(G: int, N: int, K: int) -> dict[str, float]:
    """Milliseconds of the parts of a Gibbs row pass."""
    with x64():
        rng = np.random.default_rng(0)
        A = jnp.asarray(np.cov(rng.standard_normal((K, N))) * N)
        Z = jnp.asarray(rng.random((K, G)) < 0.2)
        b, tau, alpha = jnp.asarray(rng.standard_normal((K, G))), jnp.ones(G), jnp.ones((K, 1))
        stream = RowStream(np.uint64(1), np.uint64(2), np.uint64(3))
        numbers, shape = jnp.arange(G), jnp.full(G, 0.5 * N)
        factor = jnp.arange(K)[:, None]
        found = {
            "loadings": timed(lambda: jax.jit(draw_loadings)(A, alpha, b, tau, Z, b))[0],
            "normals": timed(lambda: jax.jit(normals)(stream, factor, numbers))[0],
            "gammas": timed(lambda: jax.jit(standard_gamma)(shape, numbers, stream))[0],
        }
        Q = jnp.moveaxis(jnp.broadcast_to((A + jnp.eye(K))[:, :, None], (K, K, G)) * tau, 2, 0)
        found["cholesky"] = timed(lambda: jax.jit(jnp.linalg.cholesky)(Q))[0]
        found["moveaxis"] = timed(lambda: jax.jit(lambda Q: jnp.moveaxis(Q, 0, 2) + 1.0)(Q))[0]
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
    return {"ms": whole, "columns": step, "rows": rows, "compile_s": first, "elbo": state.elbo}


def gibbs_sweep(G: int, N: int, K: int, moves: bool = False) -> dict[str, float]:
    """Milliseconds of a sweep, and of its row pass."""
    data, L, F = simulated(G, N, K)
    prior = Prior(n_factors=K, inclusion=Beta(1, 9))
    engine = JaxEngine(data, prior)
    gibbs = Gibbs(data, prior, engine, moves_for(engine) if moves else [])
    state = gibbs.start(np.asarray(L), np.asarray(F, np.float64))
    begin = time.perf_counter()
    state = gibbs.sweep(state, (1, 2), 1)[0]
    first = time.perf_counter() - begin
    message, noise = gibbs.message(state), engine.row_noise((1, 2), 3)
    rows, _ = timed(lambda: engine.gibbs_row_pass(state.rows, message, noise)[0].L)
    whole, _ = timed(lambda: gibbs.sweep(state, (1, 2), 4)[0].rows.L)
    return {"ms": whole, "rows": rows, "compile_s": first}


def whole_fit(G: int, N: int, K: int, limit: float = 45.0, true: int | None = None) -> dict[str, Any]:
    """Seconds of a default search, and how much of the truth it finds."""
    data, _, F = simulated(G, N, true or K)
    jax.block_until_ready(data.Y)
    prior = Prior(n_factors=K)
    begin = time.perf_counter()
    phases: dict[str, float] = {}

    def watch(now: Any) -> bool:
        phases[now.phase] = round(time.perf_counter() - begin, 2)
        return time.perf_counter() - begin > limit

    engine = JaxEngine(data, prior)
    found = search_on(engine, prior, options_of(callback=watch, tol=1e-6))
    seconds = time.perf_counter() - begin
    estimated, truth = np.asarray(found.winner.state.columns.f_mean), np.asarray(F, np.float64)
    unit = [f / np.maximum(np.linalg.norm(f, axis=1, keepdims=True), 1e-300) for f in (estimated, truth)]
    cosines = np.abs(unit[0] @ unit[1].T).max(axis=0)
    iterations = sum(trial.iterations for trial in found.trials)
    return {
        "seconds": seconds, "elbo": found.winner.elbo, "status": found.status.name, "iterations": iterations,
        "worst_cosine": float(cosines.min()), "found": int((cosines > 0.99).sum()), "phases": phases, **found.told,
    }  # fmt: skip


JOBS: dict[str, Callable[[], dict[str, Any]]] = {
    "products 20,000 x 100,000, K 50": lambda: products(20_000, 100_000, 50),
    "CAVI 20,000 x 100,000, K 50": lambda: vi_sweep(20_000, 100_000, 50),
    "CAVI 20,000 x 10,000, K 50": lambda: vi_sweep(20_000, 10_000, 50),
    "CAVI 20,000 x 10,000, K 50, 8 modules": lambda: vi_sweep(20_000, 10_000, 50, modules=8),
    "CAVI 20,000 x 10,000, K 50, 10 % missing": lambda: vi_sweep(20_000, 10_000, 50, 0.1),
    "Gibbs 16,069 x 44, K 26": lambda: gibbs_sweep(16_069, 44, 26),
    "Gibbs 200,000 x 500, K 30": lambda: gibbs_sweep(200_000, 500, 30),
    "Gibbs pieces 200,000 x 500, K 30": lambda: gibbs_pieces(200_000, 500, 30),
    "fit 20,000 x 100,000, K 50": lambda: whole_fit(20_000, 100_000, 50),
    "CAVI 800 x 100, K 6": lambda: vi_sweep(800, 100, 6),
    "CAVI 5,000 x 500, K 10": lambda: vi_sweep(5_000, 500, 10),
    "CAVI 20,000 x 2,000, K 30": lambda: vi_sweep(20_000, 2_000, 30),
    "CAVI 20,000 x 2,000, K 30, 10 % missing": lambda: vi_sweep(20_000, 2_000, 30, 0.1),
}
SMALL: dict[str, Callable[[], dict[str, Any]]] = {
    "products": lambda: products(200, 300, 5),
    "CAVI": lambda: vi_sweep(200, 100, 5),
    "modules": lambda: vi_sweep(200, 100, 5, modules=3),
    "missing": lambda: vi_sweep(200, 100, 5, 0.1),
    "Gibbs": lambda: gibbs_sweep(200, 100, 5, moves=True),
    "pieces": lambda: gibbs_pieces(200, 100, 5),
    "fit": lambda: whole_fit(300, 200, 4),
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
