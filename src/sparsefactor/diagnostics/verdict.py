"""The verdict on draws: which chains disagree about what, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..names import listed
from ..posterior import MCMCPosterior
from ..posterior.verdict import Verdict
from .measures import FEWEST_DRAWS
from .modes import Mode, find_modes, found_factors
from .quantities import Fault, faults, lines, quantities

# 1.01 is the usual limit for one quantity; here it is held against the worst of thousands.
R_HAT_LIMIT = 1.05
ESS_PER_CHAIN = 50  # fewer, and R-hat itself is unreliable
NAMED = 3  # subjects that a verdict names one by one


class SamplingWarning(UserWarning):
    """The draws of a run are not reliable yet; the message is the verdict."""


@dataclass(frozen=True, repr=False)
class ChainsVerdict(Verdict):
    """The verdict on draws, with what it was found from. r_hat, ess: the worst that count."""

    modes: tuple[Mode, ...] = ()
    r_hat: float = float("nan")
    ess: float = 0.0


def judge(mc: MCMCPosterior, measured: Iterable[dict[str, Any]] | None = None) -> ChainsVerdict:
    """The verdict on draws. measured: lines of every quantity, where they are known already.

    A factor that no chain finds is empty, or comes and goes: which label it carries means nothing. It is judged by
    what needs no labels: the log joint, noise, signal, and the numbers of active loadings and of factors in use.
    """
    broken = faults(mc)
    modes = find_modes(mc)
    _, found = found_factors(mc)
    if measured is None:
        measured = [line for name, values in quantities(mc, quick=True) for line in lines(name, values)]
    counted = [line for line in measured if line["factor"] is None or found[:, line["factor"]].any()]
    subjects = {
        line["subject"]: [other for other in counted if other["subject"] == line["subject"]] for line in counted
    }
    worst = {subject: _worst(own) for subject, own in subjects.items()}
    r_hat = max((line["r_hat"] for line in worst.values() if line["r_hat"] == line["r_hat"]), default=float("nan"))
    ess = min((line["ess_bulk"] for line in worst.values() if line["ess_bulk"] == line["ess_bulk"]), default=0.0)
    said = _bad(mc, broken, modes, worst)
    if said is None:
        agree = f"The draws can be used: {mc.n_chains} chains of {mc.permutations.shape[1]:,} draws agree."
        found_out = f"One mode; largest R-hat {r_hat:.3f}; at least {ess:.0f} effective draws of everything."
        said = Verdict("good", agree, tuple(filter(None, (found_out, _unfound(found)))))
    return ChainsVerdict(said.level, said.sentence, said.reasons, said.remedies, modes, float(r_hat), float(ess))


def _worst(own: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A subject's worst R-hat and effective sample size, and the quantity that mixes worst."""
    r_hats = [line["r_hat"] for line in own]
    sizes = [line["ess_bulk"] for line in own]
    known = np.array(r_hats) if not np.isnan(r_hats).all() else -np.array(sizes)
    blame = "constant" if np.isnan(known).all() else own[int(np.nanargmax(known))]["quantity"]
    return {"r_hat": _known(np.nanmax, r_hats), "ess_bulk": _known(np.nanmin, sizes), "worst": blame}


def _known(reduce: Any, values: Sequence[float]) -> float:
    return float("nan") if np.isnan(values).all() else float(reduce(values))


def _bad(
    mc: MCMCPosterior, broken: Sequence[Fault], modes: tuple[Mode, ...], worst: dict[str, dict[str, Any]]
) -> Verdict | None:
    """What is wrong with the draws, and what to do; None where nothing is."""
    n_draws, wanted = mc.permutations.shape[1], ESS_PER_CHAIN * mc.n_chains
    causes: list[str] = []
    reasons: list[str] = []
    remedies: list[str] = []
    if broken:
        causes.append("impossible draws")
        reasons += [f"Chain {fault.chain}: {fault.variable} {fault.what}." for fault in broken[:NAMED]]
        if len(broken) > NAMED:
            reasons.append(f"{len(broken) - NAMED} more faults of this kind.")
        good = [number for number in mc.chain_numbers if number not in {fault.chain for fault in broken}]
        remedies.append("sample again" + (f", or leave these chains out: keep_chains({good})" if good else ""))
    if mc.n_chains < 2 or n_draws < FEWEST_DRAWS:
        causes.append("too few chains or draws")
        reasons.append(f"R-hat needs two chains of four draws or more; got {mc.n_chains} of {n_draws}.")
        remedies.append("run more chains (n_chains=4) and draws")
    apart = sorted((s for s, line in worst.items() if line["r_hat"] > R_HAT_LIMIT), key=lambda s: -worst[s]["r_hat"])
    if apart:
        causes.append("disagreement between chains")
        for subject in apart[:NAMED]:
            blame = worst[subject]["worst"].replace("_", " ")
            of = f" ({blame})" if blame != subject else ""
            reasons.append(f"{subject[0].upper()}{subject[1:]}: R-hat {worst[subject]['r_hat']:.2f}{of}.")
        if len(apart) > NAMED:
            reasons.append(f"R-hat above {R_HAT_LIMIT} for {len(apart) - NAMED} more (see the table of diagnostics).")
    few = sorted((s for s, line in worst.items() if line["ess_bulk"] < wanted), key=lambda s: worst[s]["ess_bulk"])
    if few:
        causes.append("too few effective draws")
        fewest = worst[few[0]]["ess_bulk"]
        reasons.append(f"Effective draws: {fewest:.0f} for {few[0]}, where {wanted} are needed.")
    if apart or few:
        remedies.append("run longer (the same path with larger n_draws continues the run)")
    if len(modes) > 1:
        causes.append(f"{len(modes)} modes")
        named = "; ".join(f"{mode.name}: {_chains(mode.chains)} (log joint {mode.log_joint:.1f})" for mode in modes)
        reasons.append(f"{len(modes)} modes, that is, different solutions: {named}.")
        remedies.append(
            f"keep the chains of one mode: keep_chains({list(modes[0].chains)}); or weight the chains by how well they "
            'predict: combine("stacking", X)'
        )
    if not causes:
        return None
    return Verdict("bad", f"Not reliable yet: {listed(causes)}.", tuple(reasons), tuple(remedies))


def _unfound(found: Any) -> str:
    """Which factors were judged without their labels, in words."""
    none = np.flatnonzero(~found.any(axis=0)) + 1
    if not len(none):
        return ""
    names = f"Factor {none[0]} is" if len(none) == 1 else f"Factors {listed([str(k) for k in none])} are"
    return f"{names} empty, or nearly so, and judged without labels."


def _chains(chains: tuple[int, ...]) -> str:
    return f"chain{'s' * (len(chains) > 1)} {listed([str(chain) for chain in chains])}"
