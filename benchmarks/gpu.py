"""Times of the JAX engine on one GPU, each beside what two readings of the matrix would take: `python -m benchmarks.gpu`.

Data are made on the device. Times are medians of repeats after a first call, which is told apart as compilation.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from sparsefactor.data import as_data
from sparsefactor.engine import jax_engine
from sparsefactor.engine.cpu import CpuEngine
from sparsefactor.engine.jax_engine import JaxEngine
from sparsefactor.engine.threads import single_blas_thread
from sparsefactor.gibbs.moves import moves_for
from sparsefactor.gibbs.sweep import Gibbs
from sparsefactor.kernels.jax.library import jax, jnp, lax, x64
from sparsefactor.kernels.jax.products import PRECISIONS, mask_times
from sparsefactor.model import Beta, Prior
from sparsefactor.vi.cavi import CAVI
from sparsefactor.vi.modules import sorted_by, under_modules

from .gpu_data import simulated, timed
from .gpu_fits import Tell, chains, in_fresh_processes, precision, streamed, trials_together, whole_fit


def products(G: int, N: int, K: int) -> dict[str, float]:
    """Both products of a sweep in each precision, milliseconds."""
    Y = jax.random.normal(jax.random.key(0), (G, N), jnp.float32)
    F = jax.random.normal(jax.random.key(1), (N, K), jnp.float32)
    W = jax.random.normal(jax.random.key(2), (K, G), jnp.float32)
    some = np.asarray(Y[:64], np.float64) @ np.asarray(F, np.float64)
    found = {"read": timed(lambda: jnp.sum(Y))[0]}
    for name, preset in PRECISIONS.items():
        with suppress(Exception):
            right = jax.jit(lambda Y, F, p=preset: lax.dot(Y, F, precision=p))
            left = jax.jit(lambda W, Y, p=preset: lax.dot(W, Y, precision=p))
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
    told = {"kernel": engine.kind.kernel, "compile_s": first}
    told["ms"] = timed(lambda: gibbs.sweep(state, (1, 2), 4)[0].rows.L)[0]
    with engine.scope():
        message, noise = gibbs.message(state), engine.row_noise((1, 2), 3)
        told["rows"] = timed(lambda: engine.gibbs_row_pass(state.rows, message, noise)[0].L)[0]
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


def told(job: Callable[[], dict[str, float]], tell: Tell) -> None:
    """A job that has nothing to tell before its end."""
    tell(**job())


def simply(function: Callable[..., dict[str, float]], *args: Any, **kw: Any) -> Callable[[Tell], None]:
    return partial(told, partial(function, *args, **kw))


def longer(function: Callable[..., None], *args: Any) -> Callable[[Tell], None]:
    return lambda tell: function(*args, tell=tell)


# What has a process of its own comes first: this one's has no hold of the device by then.
JOBS: dict[str, Callable[[Tell], None]] = {
    "fit 20,000 x 100,000, K 50, fresh processes": longer(in_fresh_processes, 20_000, 100_000, 50),
    "Gibbs 16,069 x 44, K 26": simply(gibbs_sweep, 16_069, 44, 26, moves=True),
    "Gibbs 200,000 x 500, K 30": simply(gibbs_sweep, 200_000, 500, 30),
    "chains 800 x 100, K 6": longer(chains, 800, 100, 6),
    "chains 16,069 x 44, K 26": longer(chains, 16_069, 44, 26),
    "streamed 20,000 x 20,000, K 50": longer(streamed, 20_000, 20_000, 50, 2_000),
    "CAVI 20,000 x 100,000, K 50": simply(vi_sweep, 20_000, 100_000, 50),
    "CAVI 20,000 x 10,000, K 50": simply(vi_sweep, 20_000, 10_000, 50),
    "CAVI 20,000 x 10,000, K 50, 8 modules": simply(vi_sweep, 20_000, 10_000, 50, modules=8),
    "CAVI 20,000 x 10,000, K 50, 10 % missing": simply(vi_sweep, 20_000, 10_000, 50, 0.1),
    "100 trials": longer(trials_together, 100, 10),
    **{
        f"crossing {G:,} x {N:,}, K {K}": simply(cpu_times, G, N, K)
        for G, N, K in (
            (200_000, 500, 30),
            (20_000, 10_000, 50),
            (20_000, 2_000, 30),
            (10_000, 1_000, 20),
            (16_069, 44, 26),
            (5_000, 500, 10),
            (2_000, 300, 10),
            (800, 100, 6),
        )
    },
    "products 20,000 x 100,000, K 50": simply(products, 20_000, 100_000, 50),
    "CAVI 20,000 x 2,000, K 30": simply(vi_sweep, 20_000, 2_000, 30),
    "CAVI 20,000 x 2,000, K 30, 10 % missing": simply(vi_sweep, 20_000, 2_000, 30, 0.1),
    "CAVI 5,000 x 500, K 10": simply(vi_sweep, 5_000, 500, 10),
    "precision, the paper's simulation": longer(precision, 2),
}
SMALL: dict[str, Callable[[Tell], None]] = {
    "fresh": longer(in_fresh_processes, 200, 100, 4),
    "products": simply(products, 200, 300, 5),
    "CAVI": simply(vi_sweep, 200, 100, 5),
    "modules": simply(vi_sweep, 200, 100, 5, modules=3),
    "missing": simply(vi_sweep, 200, 100, 5, 0.1),
    "Gibbs": simply(gibbs_sweep, 200, 100, 5, moves=True),
    "chains": longer(chains, 200, 100, 5),
    "streamed": longer(streamed, 200, 100, 5, 50),
    "trials": longer(partial(trials_together, max_iter=50), 20, 2),
    "crossing": simply(cpu_times, 200, 100, 5),
    "precision": longer(precision, 1),
}


def shown(name: str, value: Any) -> str:
    return f"            {name:32s} {value:.4g}" if isinstance(value, float) else f"            {name:32s} {value}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="jobs whose name has one of these words")
    parser.add_argument("--small", action="store_true", help="small sizes, to try the script")
    parser.add_argument("--precision", help="of products, in place of the engine's own")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no job after so many")
    parser.add_argument("--json", help="file to write, after every job")
    parser.add_argument(
        "--fit", nargs=3, type=int, help="one whole fit of G N K, told as JSON: how a fresh one is made"
    )
    args = parser.parse_args()
    if args.precision:
        jax_engine.PRECISION = args.precision
    if args.fit:
        found: dict[str, Any] = {}
        whole_fit(*args.fit, tell=lambda **more: found.update(more))
        print(json.dumps(found, default=str))
        return
    results: dict[str, dict[str, Any]] = {}
    begin = time.perf_counter()
    for name, job in (SMALL if args.small else JOBS).items():
        if (args.only and not any(word in name for word in args.only)) or time.perf_counter() - begin > args.seconds:
            continue
        print(f"{time.perf_counter() - begin:6.1f} s  {name}", flush=True)
        own = results[name] = {}

        def tell(own: dict[str, Any] = own, **more: Any) -> None:
            """What a job has found so far: shown at once."""
            own.update(more)
            print("\n".join(shown(*one) for one in more.items()), flush=True)

        try:
            job(tell)
        except Exception as problem:  # one job that fails must not lose the others
            tell(error=f"{type(problem).__name__}: {problem}"[:500])
        if args.json:
            with open(args.json, "w") as file:
                json.dump(results, file, indent=1, default=str)
    device = jax.devices()[0].device_kind
    print(
        f"{time.perf_counter() - begin:6.1f} s  done: {device}, JAX {jax.__version__}, {jax_engine.PRECISION}",
        flush=True,
    )


if __name__ == "__main__":
    main()
