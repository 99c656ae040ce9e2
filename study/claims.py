"""The paper's claims, each with the number that decides it, for the paper's recipe and for the defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .simulated import Results, Run

CLOSE = 0.01  # of accuracy or RRMSE: no significant loss
MIDDLE, NOISY, CLEAR = 5.0, 1.0, 25.0


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and whether it holds here for the plain recipe and for the defaults."""

    claim: str
    plain: str
    plain_holds: bool | None
    default: str
    default_holds: bool | None

    def row(self) -> dict[str, Any]:
        words = {True: "holds", False: "does not hold", None: "not decided"}
        return {
            "claim": self.claim,
            "as in the paper": f"{words[self.plain_holds]}: {self.plain}",
            "default": f"{words[self.default_holds]}: {self.default}",
        }


Verdict = tuple[bool | None, str]


def claims(results: Results) -> list[Claim]:
    """Every claim that the study's settings can decide."""
    tests: list[tuple[str, Callable[[Results, str], Verdict]]] = [
        ("VI converges in seconds while MCMC takes far longer (snr 5)", vi_is_faster),
        ("All VI restarts converge, to different optima (snr 5)", restarts_vary),
        ("The restart with the largest ELBO matches the best chain (snr 5)", best_restart_matches),
        ("Some MCMC chains fail to find the structure (snr 5)", chains_fail),
        ("With less noise the best VI restart does better", improves),
        ("At every noise level the best restart's accuracy of Z matches the best chain's", matches_everywhere),
        ("At snr 1 no VI restart finds factor 1, the sparsest", vi_misses_factor_1),
        ("At snr 1 some chains, not all, find factor 1", chains_find_factor_1),
        ("MCMC takes longest to converge at snr 25", slowest_when_clear),
    ]
    found = []
    for claim, test in tests:
        (plain_holds, plain), (default_holds, default) = (test(results, recipe) for recipe in ("plain", "default"))
        found.append(Claim(claim, plain, plain_holds, default, default_holds))
    return found


def seconds_to_settle(run: Run, measure: str = "z_accuracy") -> float:
    """Seconds after which a measure stays within CLOSE of where it ends."""
    end = run.last[measure]
    away = [p["seconds"] for p in run.points if abs(p[measure] - end) > CLOSE]
    later = [p["seconds"] for p in run.points if not away or p["seconds"] > away[-1]]
    return later[0]


def unfinished(results: Results, method: str, *snrs: float) -> str:
    """A note where restarts were stopped before they converged: a claim about their end is then not decided."""
    runs = [run for snr in snrs for run in results.of(snr, method)]
    stopped = sum(run.facts["status"] == "max_iter" for run in runs)
    return (
        f"; {stopped} of {len(runs)} restarts were stopped at {results.level.max_iter:,} iterations" if stopped else ""
    )


def vi_is_faster(results: Results, recipe: str) -> Verdict:
    vi = max(run.facts["seconds"] for run in results.of(MIDDLE, f"vi_{recipe}"))
    mcmc = [run.facts["seconds"] for run in results.of(MIDDLE, f"mcmc_{recipe}")]
    stopped = unfinished(results, f"vi_{recipe}", MIDDLE)
    text = f"the slowest restart took {vi:.2g} s, a chain {min(mcmc):.3g} to {max(mcmc):.3g} s{stopped}"
    return None if stopped else vi < min(mcmc), text


def restarts_vary(results: Results, recipe: str) -> Verdict:
    runs = results.of(MIDDLE, f"vi_{recipe}")
    ended = [run for run in runs if run.facts["status"] == "converged"]
    elbos = [run.facts["elbo"] for run in ended]
    if recipe == "default":
        best = sum(results.reached(run) for run in ended)
        text = f"{len(ended)} of {len(runs)} ran to the end; {best} of them in the best mode"
        return (None if not elbos else max(elbos) - min(elbos) > 1.0), text
    if len(ended) < len(runs):
        return None, f"{len(ended)} of {len(runs)} converged within {results.level.max_iter:,} iterations"
    return max(elbos) - min(elbos) > 1.0, f"all {len(runs)} converged, to ELBOs {max(elbos) - min(elbos):,.0f} apart"


def best_restart_matches(results: Results, recipe: str) -> Verdict:
    restart, chain = results.best(MIDDLE, f"vi_{recipe}").last, results.best(MIDDLE, f"mcmc_{recipe}").last
    loss = max(
        chain["z_accuracy"] - restart["z_accuracy"],
        restart["rrmse_signal"] - chain["rrmse_signal"],
    )
    text = (
        f"accuracy of Z {restart['z_accuracy']:.4f} against {chain['z_accuracy']:.4f}, RRMSE of LF "
        f"{restart['rrmse_signal']:.4f} against {chain['rrmse_signal']:.4f}"
    )
    stopped = unfinished(results, f"vi_{recipe}", MIDDLE)
    return None if stopped else loss <= CLOSE, text + stopped


def chains_fail(results: Results, recipe: str) -> Verdict:
    chains = results.of(MIDDLE, f"mcmc_{recipe}")
    failed = sum(not results.reached(run) for run in chains)
    return failed > 0, f"{failed} of {len(chains)} chains lack a factor after {chains[0].facts['sweeps']:,} sweeps"


def improves(results: Results, recipe: str) -> Verdict:
    values = [results.best(snr, f"vi_{recipe}").last["z_accuracy"] for snr in (NOISY, MIDDLE, CLEAR)]
    text = "accuracy of Z " + ", ".join(f"{value:.4f}" for value in values) + " at snr 1, 5, 25"
    stopped = unfinished(results, f"vi_{recipe}", NOISY, MIDDLE, CLEAR)
    return None if stopped else values == sorted(values), text + stopped


def matches_everywhere(results: Results, recipe: str) -> Verdict:
    loss = {
        snr: results.best(snr, f"mcmc_{recipe}").last["z_accuracy"]
        - results.best(snr, f"vi_{recipe}").last["z_accuracy"]
        for snr in (NOISY, MIDDLE, CLEAR)
    }
    worst = max(loss, key=lambda snr: loss[snr])
    stopped = unfinished(results, f"vi_{recipe}", NOISY, MIDDLE, CLEAR)
    text = f"the best chain is ahead by at most {loss[worst]:+.4f} (snr {worst:g}){stopped}"
    return None if stopped else loss[worst] <= CLOSE, text


def vi_misses_factor_1(results: Results, recipe: str) -> Verdict:
    runs = results.of(NOISY, f"vi_{recipe}")
    have = sum(0 in run.found for run in runs)
    best = results.best(NOISY, f"vi_{recipe}").facts["correlations"][0]
    stopped = unfinished(results, f"vi_{recipe}", NOISY)
    text = f"{have} of {len(runs)} restarts have it; the best-ELBO restart's correlation is {best:.2f}{stopped}"
    return None if stopped and have == 0 else have == 0, text


def chains_find_factor_1(results: Results, recipe: str) -> Verdict:
    runs = results.of(NOISY, f"mcmc_{recipe}")
    have = sum(0 in run.found for run in runs)
    return 0 < have < len(runs), f"{have} of {len(runs)} chains have it"


def slowest_when_clear(results: Results, recipe: str) -> Verdict:
    times = {
        snr: sorted(seconds_to_settle(run) for run in results.of(snr, f"mcmc_{recipe}"))[results.level.n_chains // 2]
        for snr in (NOISY, MIDDLE, CLEAR)
    }
    text = "accuracy of Z settles after " + ", ".join(f"{times[s]:.2g}" for s in times) + " s at snr 1, 5, 25 (median)"
    return times[CLEAR] >= max(times.values()), text
