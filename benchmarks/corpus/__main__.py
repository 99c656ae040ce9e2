"""Defaults on real data: `python -m benchmarks.corpus vi | mcmc | surplus | noise | slab | reference | export`.

    vi         nats by which fits fall short of the reference, and seconds: the default search, and ten raced starts alone
    mcmc       whether four chains from independent starts share one mode, the largest R-hat, and seconds
    surplus    the same of the paper's simulation, with three factors more than there are, and with modules
    noise      held-out log density and error by noise prior: what the default is chosen by
    slab       the same by the slab's prior
    reference  the best ELBO of long searches, kept in corpus_reference.json
    export     all sets into one file, for machines without the packages they come from (--archive FILE reads it)

Columns are standardised (scale=True); the prior is the default one with K factors. One job is one fit, on one core.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

import sparsefactor as sf
from sparsefactor.diagnostics import judge

from .sets import load

REFERENCE = Path(__file__).with_name("corpus_reference.json")
FACTORS = (4, 10, 20)
NOISE = {
    "vague": (1e-3, 1e-3),
    "1, 0.02": (1.0, 0.02),
    "1, 0.05": (1.0, 0.05),
    "2, 0.05": (2.0, 0.05),
    "2, 0.2": (2.0, 0.2),
}
SLAB = {
    "vague": (1e-3, 1e-3),
    "1, 0.02": (1.0, 0.02),
    "1, 0.1": (1.0, 0.1),
    "1, 0.5": (1.0, 0.5),
    "2, 0.2": (2.0, 0.2),
}
KINDS = {"noise": NOISE, "slab": SLAB}
DATA: dict[str, np.ndarray] = {}
CHOSEN: dict[str, str] = {}  # priors, where they are not the default ones: "noise" or "slab" to a name


def prior_of(K: int, chosen: dict[str, str] | None = None, **rest: Any) -> sf.Prior:
    """Data are standardised, so that numbers are relative to each feature's variance."""
    for kind, name in (CHOSEN if chosen is None else chosen).items():
        shape, rate = KINDS[kind][name]
        word = {"noise": "noise", "slab": "loading"}[kind]
        rest |= {f"{word}_shape": shape, f"{word}_rate": rate}
    return sf.Prior(n_factors=K, **rest)


def fit(name: str, K: int, seed: int, **options: Any) -> dict[str, Any]:
    begin = time.perf_counter()
    vi = sf.fit_vi(DATA[name], prior_of(K), scale=True, seed=seed, n_threads=1, **options)
    factors = int(np.sum(vi.variance_explained(by="factor") > 1e-5))
    return {"elbo": vi.elbo, "seconds": time.perf_counter() - begin, "factors": factors, **vi.record["search"]}


def default(name: str, K: int, seed: int) -> dict[str, Any]:
    return fit(name, K, seed)


def raced(name: str, K: int, seed: int) -> dict[str, Any]:
    return fit(name, K, seed, n_trials=10)


def thorough(name: str, K: int, seed: int) -> dict[str, Any]:
    return fit(name, K, seed, search="thorough")


def chains(name: str, K: int, seed: int, seconds: float = 60.0) -> dict[str, Any]:
    return sampled(DATA[name], prior_of(K), seed, seconds)


def surplus(name: str, K: int, seed: int, seconds: float, n_modules: int) -> dict[str, Any]:
    """Of a simulation in units of about one, so that numbers are relative here too."""
    X = sf.simulate_paper(snr=float(name.removeprefix("snr ")), seed=seed).X
    return sampled(X / X.std(), prior_of(K, n_modules=n_modules), seed, seconds, scale=False)


def sampled(X: np.ndarray, prior: sf.Prior, seed: int, seconds: float, scale: bool = True) -> dict[str, Any]:
    begin = time.perf_counter()
    mc = sf.sample(X, prior, scale=scale, seed=seed, n_jobs=1, progress=False, until="converged", max_seconds=seconds)
    verdict = judge(mc)
    return {"ok": verdict.ok, "modes": len(verdict.modes), "r_hat": verdict.r_hat, "ess": verdict.ess,
            "draws": mc.permutations.shape[1], "text": str(verdict),
            "seconds": time.perf_counter() - begin}  # fmt: skip


def held_out(name: str, K: int, seed: int, kind: str, choice: str) -> dict[str, Any]:
    """Mean log density and error of a tenth of the entries, held out."""
    X = DATA[name]
    held = (np.random.default_rng(seed).random(X.shape) < 0.1) & np.isfinite(X)
    seen = np.where(held, np.nan, X)
    scale = np.nanstd(seen, axis=0)
    keep = (scale > 0) & (np.isfinite(seen).sum(axis=0) > 2)
    rows = np.isfinite(seen[:, keep]).any(axis=1)
    Y = (seen - np.nanmean(seen, axis=0))[:, keep][rows] / scale[keep]
    truth = ((X - np.nanmean(seen, axis=0)) / scale)[:, keep][rows]
    held = held[:, keep][rows]
    vi = sf.fit_vi(Y, prior_of(K, CHOSEN | {kind: choice}), n_trials=10, seed=seed, n_threads=1)
    mean, sd = vi.impute(return_sd=True)
    z = (truth - mean)[held] / sd[held]
    density = float(np.mean(-0.5 * z**2 - np.log(sd[held]) - 0.5 * np.log(2 * np.pi)))
    error = float(np.sqrt(np.mean((truth - mean)[held] ** 2)))
    return {"density": density, "error": error, "smallest_noise": float(1 / np.max(vi.noise_precision_mean))}


def job(task: tuple[Callable[..., dict[str, Any]], tuple[Any, ...]]) -> dict[str, Any]:
    function, args = task
    head = {"what": function.__name__, "name": args[0], "K": args[1], "seed": args[2], "rest": list(args[3:])}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return {**head, **function(*args)}
        except Exception as problem:  # a failure is a result too
            return {**head, "failed": f"{type(problem).__name__}: {problem}"[:300]}


def run(tasks: list[Any], n_jobs: int, limit: float) -> list[dict[str, Any]]:
    """All tasks in forked processes, the largest first, each compiled beforehand; what is not done when the limit (s) is
    over is left out."""
    tasks = sorted(tasks, key=lambda task: -task[1][1] * DATA[task[1][0]].size if task[1][0] in DATA else 0)
    for function in {task[0] for task in tasks}:
        extra = next(task[1][3:] for task in tasks if task[0] is function)
        if function in (chains, surplus):  # of which a short run will do
            extra = (1.0, *extra[1:])
        small = ("snr 5",) if function is surplus else ("wine", "wine_holes")
        for name in [n for n in small if n in DATA or function is surplus]:
            job((function, (name, 2, 0, *extra)))
    done: list[dict[str, Any]] = []
    end = time.monotonic() + limit
    with multiprocessing.get_context("fork").Pool(n_jobs) as pool:
        results = pool.imap_unordered(job, tasks, chunksize=1)
        while len(done) < len(tasks) and time.monotonic() < end:
            try:
                done.append(results.next(timeout=1.0))
            except multiprocessing.TimeoutError:
                continue
        pool.terminate()
    for result in done:
        if "failed" in result:
            print(result["name"], result["K"], result["seed"], result["failed"])
    if len(done) < len(tasks):
        print(f"{len(tasks) - len(done)} of {len(tasks)} were not done in {limit:g} s")
    return [result for result in done if "failed" not in result]


# ---- what is printed ---------------------------------------------------------------------------------------------


def show_vi(results: list[dict[str, Any]], reference: dict[str, float]) -> None:
    best = dict(reference)
    for r in results:
        key = f"{r['name']} {r['K']}"
        best[key] = max(best.get(key, -np.inf), r["elbo"])
    print(f"{'set':22s} {'K':>3s}  nats short of the best: default search | ten raced starts; seconds of each")
    groups: dict[Any, Any] = defaultdict(list)
    for r in sorted(results, key=lambda r: (r["name"], r["K"], r["seed"])):
        groups[r["name"], r["K"], r["what"]].append(
            (best[f"{r['name']} {r['K']}"] - r["elbo"], r["seconds"], r["factors"])
        )
    for name, K in sorted({key[:2] for key in groups}):
        parts = [groups.get((name, K, what), []) for what in ("default", "raced")]
        short = " | ".join(" ".join(f"{s:8.2f}" for s, _, _ in part) for part in parts)
        times = " | ".join(f"{np.median([t for _, t, _ in part]):6.2f}" if part else "" for part in parts)
        factors = {f for _, _, f in parts[0]}
        print(f"{name:22s} {K:3d}  {short}   {times}   factors {sorted(factors)}")
    for what in ("default", "raced"):
        lines = [v for key, part in groups.items() if key[2] == what for v in part]
        if lines:
            s, t = np.array([v[0] for v in lines]), np.array([v[1] for v in lines])
            print(f"{what}: {len(s)} fits; within 1 nat {np.mean(s < 1):.1%}, within 10 nats {np.mean(s < 10):.1%}; "
                  f"median {np.median(t):.2f} s, largest {t.max():.1f} s")  # fmt: skip
        for K in FACTORS:
            s = np.array([v[0] for key, part in groups.items() if key[1:] == (K, what) for v in part])
            if len(s):
                print(
                    f"    K {K}: {len(s)} fits; within 1 nat {np.mean(s < 1):.1%}, within 10 nats {np.mean(s < 10):.1%}"
                )


def show_larger(results: list[dict[str, Any]]) -> None:
    """Fits that end lower than those of the same set and seed with fewer factors, less what empty factors cost.

    An empty factor costs at most log(G + 1) nats: no feature included, under a uniform prior on the rate.
    """
    fits = {(r["name"], r["seed"], r["K"]): r["elbo"] for r in results if r["what"] == "default"}
    pairs, lower = 0, []
    for (name, seed, K), elbo in fits.items():
        for larger in [k for n, s, k in fits if (n, s) == (name, seed) and k > K]:
            pairs += 1
            short = elbo - (larger - K) * np.log(DATA[name].shape[1] + 1.0) - fits[name, seed, larger]
            if short > 1.0:
                lower.append(f"{name} seed {seed}: K {larger} is {short:.1f} nats below K {K}")
    print(
        f"lower at a larger K by more than a nat beyond the empty factors' cost: {len(lower)} of {pairs}",
        *lower,
        sep="\n",
    )


def show_mcmc(results: list[dict[str, Any]]) -> None:
    print(f"{'set':22s} {'K':>3s} modes  R-hat    ESS  draws seconds verdict")
    for r in sorted(results, key=lambda r: (r["name"], r["K"], r["seed"])):
        verdict = "good" if r["ok"] else r["text"].removeprefix("Not reliable yet: ").split(". Remedy")[0][:150]
        print(f"{r['name']:22s} {r['K']:3d} {r['modes']:5d} {r['r_hat']:6.3f} {r['ess']:6.0f} {r['draws']:6d} "
              f"{r['seconds']:7.1f} {verdict}")  # fmt: skip
    for K in sorted({r["K"] for r in results}):
        own = [r for r in results if r["K"] == K]
        if own:
            one = np.array([r["modes"] == 1 for r in own])
            good = np.array([r["r_hat"] < 1.05 for r in own])
            trusted = np.mean([r["ok"] for r in own])
            print(f"K {K}: {len(own)} runs; all chains in one mode {np.mean(one):.1%}, and R-hat below 1.05 "
                  f"{np.mean(one & good):.1%}, and effective draws enough {trusted:.1%}")  # fmt: skip


def show_held_out(results: list[dict[str, Any]], choices: dict[str, Any]) -> None:
    table: dict[Any, dict[str, Any]] = defaultdict(dict)
    for r in results:
        table[r["name"], r["K"], r["seed"]][r["rest"][1]] = r
    whole = {key: row for key, row in table.items() if len(row) == len(choices)}
    print("held-out log density less that of the vague prior, by (set, K): mean over masks; smallest noise variance")
    for name, K in sorted({key[:2] for key in whole}):
        rows = [row for key, row in whole.items() if key[:2] == (name, K)]
        gain = [np.mean([row[p]["density"] - row["vague"]["density"] for row in rows]) for p in choices]
        small = [min(row[p]["smallest_noise"] for row in rows) for p in choices]
        print(f"{name:22s} {K:3d} ", " ".join(f"{g:+.4f}" for g in gain), " ", " ".join(f"{s:.1e}" for s in small))
    for p in choices:
        gain = np.array([row[p]["density"] - row["vague"]["density"] for row in whole.values()])
        error = np.array([row[p]["error"] / row["vague"]["error"] - 1 for row in whole.values()])
        print(f"{p:8s} density: mean {gain.mean():+.4f}, better in {np.mean(gain > 1e-4):.0%}, worse in "
              f"{np.mean(gain < -1e-4):.0%}; error {error.mean():+.2%}")  # fmt: skip


def tasks_of(what: Iterable[Any], names: list[str], factors: list[int], seeds: int, *rest: Any) -> list[Any]:
    return [(f, (n, K, s, *rest)) for s in range(seeds) for n in names for K in factors for f in what]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("vi", "mcmc", "surplus", *KINDS, "reference", "export"))
    parser.add_argument("--sets", nargs="*", help="by name; all by default")
    parser.add_argument("--factors", nargs="*", type=int, default=list(FACTORS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds after which what is done is shown")
    parser.add_argument("--max-seconds", type=float, default=60.0, help="of one run of `sample`")
    for kind, choices in KINDS.items():
        words = f"shape and rate of the {kind} prior; the default's otherwise"
        parser.add_argument(f"--{kind}", choices=tuple(choices), help=words)
    parser.add_argument("--archive", type=Path, help="read (or, for export, write) the sets here")
    parser.add_argument("--out", type=Path, help="write all results here, as JSON")
    args = parser.parse_args()
    if args.what == "export":
        np.savez_compressed(args.archive, **load(None, args.sets))
        return
    DATA.update(load(args.archive, args.sets))
    CHOSEN.update({kind: getattr(args, kind) for kind in KINDS if getattr(args, kind)})
    names = list(DATA)
    reference = json.loads(REFERENCE.read_text()) if REFERENCE.exists() else {}
    if args.what == "vi":
        results = run(tasks_of((default, raced), names, args.factors, args.seeds), args.jobs, args.limit)
        show_vi(results, reference)
        show_larger(results)
    elif args.what == "mcmc":
        results = run(tasks_of((chains,), names, args.factors, args.seeds, args.max_seconds), args.jobs, args.limit)
        show_mcmc(results)
    elif args.what == "surplus":
        for words, K, modules in (("K 9, three factors too many", 9, 1), ("K 6, eight modules", 6, 8)):
            tasks = tasks_of((surplus,), ["snr 1", "snr 5", "snr 25"], [K], args.seeds, args.max_seconds, modules)
            results = run(tasks, args.jobs, args.limit)
            print(words)
            show_mcmc(results)
    elif args.what in KINDS:
        choices = KINDS[args.what]
        tasks = [t for c in choices for t in tasks_of((held_out,), names, args.factors, args.seeds, args.what, c)]
        results = run(sorted(tasks, key=lambda task: task[1][:3]), args.jobs, args.limit)
        show_held_out(results, choices)
    else:
        results = run(tasks_of((thorough,), names, args.factors, args.seeds), args.jobs, args.limit)
        for r in results:
            key = f"{r['name']} {r['K']}"
            reference[key] = max(reference.get(key, -np.inf), r["elbo"])
        REFERENCE.write_text(json.dumps(dict(sorted(reference.items())), indent=1) + "\n")
    if args.out is not None:
        args.out.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
