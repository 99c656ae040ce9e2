"""From measures to words: which chains disagree about what, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..posterior import MCMCPosterior
from .measures import FEWEST_DRAWS
from .modes import Mode, find_modes, found_factors
from .quantities import Fault, faults, lines, quantities

# 1.01 is the usual limit for one quantity; here it is held against the worst of thousands.
R_HAT_LIMIT = 1.05
ESS_PER_CHAIN = 50  # fewer, and R-hat itself cannot be trusted
NAMED = 3  # subjects that a verdict names one by one


class SamplingWarning(UserWarning):
    """The draws of a run are not to be trusted yet; the message is the verdict."""


class Verdict(NamedTuple):
    """ok: the draws can be used; text says so, or what is wrong and what to do. r_hat, ess: the worst that count."""

    ok: bool
    text: str
    modes: tuple[Mode, ...]
    r_hat: float
    ess: float


def judge(mc: MCMCPosterior, measured: Iterable[dict[str, Any]] | None = None) -> Verdict:
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
    ok, text = _say(mc, broken, modes, worst, r_hat, ess, _unfound(found))
    return Verdict(ok, text, modes, float(r_hat), float(ess))


def _worst(own: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A subject's worst R-hat and effective sample size, and the quantity that mixes worst."""
    r_hats = [line["r_hat"] for line in own]
    sizes = [line["ess_bulk"] for line in own]
    known = np.array(r_hats) if not np.isnan(r_hats).all() else -np.array(sizes)
    blame = "constant" if np.isnan(known).all() else own[int(np.nanargmax(known))]["quantity"]
    return {"r_hat": _known(np.nanmax, r_hats), "ess_bulk": _known(np.nanmin, sizes), "worst": blame}


def _known(reduce: Any, values: Sequence[float]) -> float:
    return float("nan") if np.isnan(values).all() else float(reduce(values))


def _say(
    mc: MCMCPosterior,
    broken: Sequence[Fault],
    modes: tuple[Mode, ...],
    worst: dict[str, dict[str, Any]],
    r_hat: float,
    ess: float,
    unfound: str,
) -> tuple[bool, str]:
    n_draws = mc.permutations.shape[1]
    said: list[str] = []
    remedies: list[str] = []
    for fault in broken[:NAMED]:
        said.append(f"chain {fault.chain}: {fault.variable} {fault.what}")
    if len(broken) > NAMED:
        said.append(f"{len(broken) - NAMED} more faults of this kind")
    if broken:
        bad = {fault.chain for fault in broken}
        good = [number for number in mc.chain_numbers if number not in bad]
        remedies.append("sample again" + (f", or leave these chains out: keep_chains({good})" if good else ""))
    if mc.n_chains < 2 or n_draws < FEWEST_DRAWS:
        said.append(f"R-hat needs two chains of four draws or more; got {mc.n_chains} of {n_draws}")
        remedies.append("run more chains (n_chains=4) and draws")
    apart = sorted((s for s, line in worst.items() if line["r_hat"] > R_HAT_LIMIT), key=lambda s: -worst[s]["r_hat"])
    for subject in apart[:NAMED]:
        blame = worst[subject]["worst"].replace("_", " ")
        said.append(f"{subject}: R-hat {worst[subject]['r_hat']:.2f}" + (f" ({blame})" if blame != subject else ""))
    if len(apart) > NAMED:
        said.append(f"R-hat above {R_HAT_LIMIT} for {len(apart) - NAMED} more (see the table of diagnostics)")
    wanted = ESS_PER_CHAIN * mc.n_chains
    few = sorted((s for s, line in worst.items() if line["ess_bulk"] < wanted), key=lambda s: worst[s]["ess_bulk"])
    if few:
        said.append(f"too few effective draws: {worst[few[0]]['ess_bulk']:.0f} for {few[0]}, where {wanted} are wanted")
    if apart or few:
        remedies.append("run longer (the same path with larger n_draws goes on)")
    if len(modes) > 1:
        listed = "; ".join(f"{m.name}: {_listed(m.chains)} (log joint {m.log_joint:.1f})" for m in modes)
        said.append(f"the chains sit in {len(modes)} modes, {listed}")
        remedies.append(
            f"look at one mode: keep_chains({list(modes[0].chains)}); or weigh the chains by how they predict: "
            f'combine("stacking", X)'
        )
    if said:
        return False, f"Not to be trusted yet. {'; '.join(said)}. Remedy: {'; or '.join(remedies)}."
    return True, (
        f"{mc.n_chains} chains of {n_draws} draws agree: one mode, largest R-hat {r_hat:.3f}, "
        f"at least {ess:.0f} effective draws of everything{unfound}. The draws can be used."
    )


def _unfound(found: Any) -> str:
    """Which factors were judged without their labels, in words."""
    none = np.flatnonzero(~found.any(axis=0)) + 1
    if not len(none):
        return ""
    names = f"factor {none[0]} is" if len(none) == 1 else f"factors {', '.join(map(str, none))} are"
    return f" ({names} empty, or nearly so, and judged without labels)"


def _listed(chains: tuple[int, ...]) -> str:
    if len(chains) == 1:
        return f"chain {chains[0]}"
    return f"chains {', '.join(map(str, chains[:-1]))} and {chains[-1]}"
