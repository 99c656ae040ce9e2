"""What the paper claims, each with the number that decides it: for its own recipe, and for this package's defaults."""

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
        ("All VI trials converge, to different optima (snr 5)", trials_vary),
        ("The trial with the largest ELBO matches the best chain (snr 5)", best_trial_matches),
        ("Some MCMC chains fail to find the structure (snr 5)", chains_fail),
        ("With less noise the best VI trial does better", improves),
        ("At every noise level the best trial's accuracy of Z matches the best chain's", matches_everywhere),
        ("At snr 1 no VI trial finds factor 1, the sparsest", vi_misses_factor_1),
        ("At snr 1 some chains, not all, find factor 1", chains_find_factor_1),
        ("MCMC takes longest to converge at snr 25", slowest_when_clear),
    ]
    found = []
    for claim, test in tests:
        (plain_holds, plain), (default_holds, default) = (test(results, recipe) for recipe in ("plain", "default"))
        found.append(Claim(claim, plain, plain_holds, default, default_holds))
    return found


def paragraph(results: Results) -> str:
    """The claims as a short text, a line each."""
    sentences = []
    for claim in claims(results):
        row = claim.row()
        sentences.append(f"{claim.claim}. As in the paper: {row['as in the paper']}. Default: {row['default']}.")
    return "\n".join(sentences)


def settled(run: Run, measure: str = "z_accuracy") -> float:
    """Seconds after which a measure stays within CLOSE of where it ends."""
    end = run.last[measure]
    away = [p["seconds"] for p in run.points if abs(p[measure] - end) > CLOSE]
    later = [p["seconds"] for p in run.points if not away or p["seconds"] > away[-1]]
    return later[0]


def unfinished(results: Results, method: str, *snrs: float) -> str:
    """Said where trials were stopped before they converged, for then a claim about their end is not decided."""
    runs = [run for snr in snrs for run in results.of(snr, method)]
    stopped = sum(run.facts["status"] == "max_iter" for run in runs)
    return f"; {stopped} of {len(runs)} trials were stopped at {results.level.max_iter:,} iterations" if stopped else ""


def vi_is_faster(results: Results, recipe: str) -> Verdict:
    vi = max(run.facts["seconds"] for run in results.of(MIDDLE, f"vi_{recipe}"))
    mcmc = [run.facts["seconds"] for run in results.of(MIDDLE, f"mcmc_{recipe}")]
    stopped = unfinished(results, f"vi_{recipe}", MIDDLE)
    text = f"the slowest trial took {vi:.2g} s, a chain {min(mcmc):.3g} to {max(mcmc):.3g} s{stopped}"
    return None if stopped else vi < min(mcmc), text


def trials_vary(results: Results, recipe: str) -> Verdict:
    runs = results.of(MIDDLE, f"vi_{recipe}")
    ended = [run for run in runs if run.facts["status"] == "converged"]
    elbos = [run.facts["elbo"] for run in ended]
    if recipe == "default":
        best = sum(results.reached(run) for run in ended)
        text = f"{len(ended)} of {len(runs)} run to the end, the race drops the others; {best} of them in the best mode"
        return (None if not elbos else max(elbos) - min(elbos) > 1.0), text
    if len(ended) < len(runs):
        return None, f"{len(ended)} of {len(runs)} converged within {results.level.max_iter:,} iterations"
    return max(elbos) - min(elbos) > 1.0, f"all {len(runs)} converged, to ELBOs {max(elbos) - min(elbos):,.0f} apart"


def best_trial_matches(results: Results, recipe: str) -> Verdict:
    trial, chain = results.best(MIDDLE, f"vi_{recipe}").last, results.best(MIDDLE, f"mcmc_{recipe}").last
    loss = max(
        chain["z_accuracy"] - trial["z_accuracy"],
        trial["rrmse_signal"] - chain["rrmse_signal"],
    )
    text = (
        f"accuracy of Z {trial['z_accuracy']:.4f} against {chain['z_accuracy']:.4f}, RRMSE of LF "
        f"{trial['rrmse_signal']:.4f} against {chain['rrmse_signal']:.4f}"
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
    text = f"{have} of {len(runs)} trials have it; the best-ELBO trial's correlation is {best:.2f}{stopped}"
    return None if stopped and have == 0 else have == 0, text


def chains_find_factor_1(results: Results, recipe: str) -> Verdict:
    runs = results.of(NOISY, f"mcmc_{recipe}")
    have = sum(0 in run.found for run in runs)
    return 0 < have < len(runs), f"{have} of {len(runs)} chains have it"


def slowest_when_clear(results: Results, recipe: str) -> Verdict:
    times = {
        snr: sorted(settled(run) for run in results.of(snr, f"mcmc_{recipe}"))[results.level.n_chains // 2]
        for snr in (NOISY, MIDDLE, CLEAR)
    }
    text = "accuracy of Z settles after " + ", ".join(f"{times[s]:.2g}" for s in times) + " s at snr 1, 5, 25 (median)"
    return times[CLEAR] >= max(times.values()), text
