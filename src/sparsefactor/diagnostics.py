"""Can these chains be trusted? R-hat, effective sample sizes and Monte Carlo errors, modes, and a verdict in words.

The measures are those of Vehtari and others (2021), computed by arviz-stats. They see every parameter under the one
labelling of all draws, and quantities that need no labels at all.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .posterior import MCMCPosterior
from .relabel import assignment
from .storage.lazy import draws_per_block
from .storage.moments import blocks, chain_moments

if TYPE_CHECKING:
    import pandas
    import xarray

Array = NDArray[np.float64]

# 1.01 is the usual limit for one quantity; here it is held against the worst of thousands.
R_HAT_LIMIT = 1.05
ESS_PER_CHAIN = 50  # fewer, and R-hat itself cannot be trusted
SAME_MODE = 0.95  # correlation of two chains' mean activations, for every factor that one of them finds
FOUND = 0.5  # a factor is found where its activations' squared mean is this share of their mean square, or more
NAMED = 3  # subjects that a verdict names one by one
PASS_BYTES = 256e6  # of draws that are looked at in one pass over the store
TAILS = (0.05, 0.95)
MEASURES = ("r_hat", "ess_bulk", "ess_tail", "mcse", "sd")


@dataclass(frozen=True)
class Mode:
    """Chains that describe the same factors. log_joint: the mean over their draws."""

    name: str
    chains: tuple[int, ...]
    log_joint: float


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """What `MCMCPosterior.diagnostics` returns.

    table: a line per factor and per label-free quantity: the worst R-hat, the smallest effective sample sizes and the
        largest Monte Carlo error (in posterior standard deviations) of what belongs to it, and which that is.
    quantities: the same, a line per factor and kind of parameter. parameters: every parameter, NaN where constant.
    """

    ok: bool
    verdict: str
    modes: tuple[Mode, ...]
    table: pandas.DataFrame = field(repr=False)
    quantities: pandas.DataFrame = field(repr=False)
    parameters: xarray.Dataset = field(repr=False)

    def __str__(self) -> str:
        return self.verdict


def diagnose(mc: MCMCPosterior) -> Diagnostics:
    """Every measure of every parameter, summarised, and a verdict."""
    import pandas as pd
    import xarray as xr

    measured = dict(_quantities(mc))
    lines = [line for name, values in measured.items() for line in _lines(name, values)]
    quantities = pd.DataFrame(lines).set_index(["subject", "quantity"])
    table = _worst(quantities)
    modes = find_modes(mc)
    ok, verdict = _judge(mc, table, modes)
    return Diagnostics(ok, verdict, modes, table, quantities, xr.Dataset(measured))


# ---- what is measured ---------------------------------------------------------------------------------------------


def _quantities(mc: MCMCPosterior) -> Iterator[tuple[str, xarray.DataArray]]:
    """Each quantity with its measures (measure, ...), a part of the features at a time where there are many draws."""
    import xarray as xr

    posterior = mc.draws["posterior"].to_dataset()
    for name in ("loadings", "activations"):
        array = posterior[name]
        axis = "feature" if name == "loadings" else "observation"
        step = max(1, int(PASS_BYTES // (array.size * 8 / array.sizes[axis])))
        parts = [measure(array.isel({axis: part})) for part in blocks(array.sizes[axis], step)]
        yield name, xr.concat(parts, axis)
    for name in ("loading_precision", "inclusion_rate", "noise_precision"):
        if name in posterior:
            yield name, measure(posterior[name])
    for name, array in summaries(mc).items():
        yield name, measure(array)
    yield "log_joint", measure(mc.draws["sample_stats"].to_dataset()["lp"])


def summaries(mc: MCMCPosterior) -> dict[str, xarray.DataArray]:
    """Per draw: |f_k|^2, |l_k|^2, the number of active loadings, (chain, draw, factor); and |LF|^2, (chain, draw)."""
    import xarray as xr

    posterior = mc.draws["posterior"].to_dataset()
    L, F, Z = (posterior[name].variable for name in ("loadings", "activations", "inclusion"))
    n_chains, n_draws, G, K = L.shape
    out = {name: np.empty((n_chains, n_draws, K)) for name in ("activations_norm", "loadings_norm", "n_active")}
    signal = np.empty((n_chains, n_draws))
    for chain in range(n_chains):
        for part in blocks(n_draws, draws_per_block((G, K), np.float64)):
            l, f = L[chain, part].values, F[chain, part].values
            out["activations_norm"][chain, part] = np.einsum("tjk,tjk->tk", f, f)
            out["loadings_norm"][chain, part] = np.einsum("tik,tik->tk", l, l)
            out["n_active"][chain, part] = Z[chain, part].values.sum(axis=1)
            signal[chain, part] = np.sum((np.swapaxes(l, 1, 2) @ l) * (np.swapaxes(f, 1, 2) @ f), axis=(1, 2))
    named = {name: xr.DataArray(values, dims=("chain", "draw", "factor")) for name, values in out.items()}
    return {**named, "signal_norm": xr.DataArray(signal, dims=("chain", "draw"))}


def measure(array: xarray.DataArray) -> xarray.DataArray:
    """(measure, ...) of an array (chain, draw, ...); NaN where a parameter never changes."""
    import xarray as xr

    ordered = array.transpose("chain", "draw", ...)
    values = ordered.values.astype(np.float64, copy=False)
    n_chains, n_draws, *own = values.shape
    flat = np.ascontiguousarray(values.reshape(n_chains, n_draws, -1).transpose(2, 0, 1))
    out = np.full((len(MEASURES), len(flat)), np.nan)
    varies = np.flatnonzero(flat.max(axis=(1, 2)) > flat.min(axis=(1, 2)))
    if len(varies) and n_draws >= 4:
        out[:, varies] = _measures(flat[varies])
    dims = ("measure", *ordered.dims[2:])
    coords = {name: c for name, c in ordered.coords.items() if set(c.dims) <= set(dims)}
    return xr.DataArray(out.reshape(len(MEASURES), *own), dims=dims, coords={**coords, "measure": list(MEASURES)})


def _measures(x: Array) -> Array:
    """(len(MEASURES), n) of parameters (n, chain, draw), by arviz-stats."""
    from arviz_stats.base.array import array_stats as stats

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # Where each chain is stuck at its own value, R-hat is infinite, and rightly so.
        warnings.simplefilter("ignore", RuntimeWarning)
        several = x.shape[1] > 1
        return np.stack(
            [
                stats.rhat(x, chain_axis=1, draw_axis=2) if several else np.full(len(x), np.nan),
                stats.ess(x, chain_axis=1, draw_axis=2, method="bulk"),
                stats.ess(x, chain_axis=1, draw_axis=2, method="tail", prob=TAILS),
                stats.mcse(x, chain_axis=1, draw_axis=2, method="mean"),
                x.std(axis=(1, 2)),
            ]
        )


# ---- summaries ----------------------------------------------------------------------------------------------------


def _lines(name: str, values: xarray.DataArray) -> Iterator[dict[str, Any]]:
    """A quantity's worst measures: a line per factor, or one line where it has no labels."""
    if "factor" in values.dims:
        for k in range(values.sizes["factor"]):
            yield _line(f"factor {k}", name, values.isel(factor=k).values)
    else:
        yield _line(name.replace("_", " "), name, values.values)


def _line(subject: str, quantity: str, values: Array) -> dict[str, Any]:
    flat = values.reshape(len(MEASURES), -1)
    varying = ~np.isnan(flat[1])
    r_hat, bulk, tail, mcse, sd = flat[:, varying] if varying.any() else np.full((len(MEASURES), 1), np.nan)
    return {
        "subject": subject,
        "quantity": quantity,
        "n_parameters": int(varying.sum()),
        "r_hat": _extreme(np.max, r_hat),
        "ess_bulk": _extreme(np.min, bulk),
        "ess_tail": _extreme(np.min, tail),
        "mcse_over_sd": _extreme(np.max, mcse / sd),
    }


def _extreme(reduce: Any, values: Array) -> float:
    known = values[~np.isnan(values)]
    return float(reduce(known)) if len(known) else float("nan")


def _worst(quantities: pandas.DataFrame) -> pandas.DataFrame:
    """A line per subject, with the quantity that mixes worst."""
    import pandas as pd

    lines = {}
    for subject, group in quantities.groupby(level="subject", sort=False):
        inner = group.droplevel("subject")
        by = inner["r_hat"] if inner["r_hat"].notna().any() else -inner["ess_bulk"]
        lines[subject] = {
            "r_hat": inner["r_hat"].max(),
            "ess_bulk": inner["ess_bulk"].min(),
            "ess_tail": inner["ess_tail"].min(),
            "mcse_over_sd": inner["mcse_over_sd"].max(),
            "worst": by.idxmax() if by.notna().any() else "constant",
        }
    return pd.DataFrame.from_dict(lines, orient="index")


# ---- modes --------------------------------------------------------------------------------------------------------


def find_modes(mc: MCMCPosterior) -> tuple[Mode, ...]:
    """Group the chains by what they found; the largest group first, then the one with the higher log joint."""
    mean, variance = chain_moments(mc.draws, ["activations"])["activations"]
    found = np.sum(mean**2, axis=1) >= FOUND * np.sum(mean**2 + variance, axis=1)
    group = np.arange(mc.n_chains)
    for a in range(mc.n_chains):
        for b in range(a):
            if same_mode(mean[a], mean[b], found[a], found[b]):
                group[group == group[a]] = group[b]
    log_joint = mc.draws["sample_stats"].to_dataset()["lp"].values.mean(axis=1)
    members = [np.flatnonzero(group == g) for g in np.unique(group)]
    members.sort(key=lambda chains: (-len(chains), -log_joint[chains].mean()))
    return tuple(
        Mode(_name(n), tuple(mc.chain_numbers[c] for c in chains), float(log_joint[chains].mean()))
        for n, chains in enumerate(members)
    )


def same_mode(a: Array, b: Array, found_a: NDArray[np.bool_], found_b: NDArray[np.bool_]) -> bool:
    """Do two chains' mean activations (n_samples, n_factors), matched, correlate for every factor one of them finds?"""
    correlation = np.abs(_standard(a).T @ _standard(b))
    rows, columns = assignment(-correlation)
    matters = found_a[rows] | found_b[columns]
    return bool(np.all(correlation[rows, columns][matters] > SAME_MODE))


def _standard(x: Array) -> Array:
    centred = x - x.mean(axis=0)
    norm = np.linalg.norm(centred, axis=0)
    return np.asarray(centred / np.where(norm > 0, norm, 1.0))


def _name(n: int) -> str:
    return ascii_uppercase[n] if n < len(ascii_uppercase) else f"mode {n + 1}"


# ---- the verdict --------------------------------------------------------------------------------------------------


def _judge(mc: MCMCPosterior, table: pandas.DataFrame, modes: tuple[Mode, ...]) -> tuple[bool, str]:
    n_draws = mc.permutations.shape[1]
    said: list[str] = []
    remedies: list[str] = []
    if mc.n_chains < 2 or n_draws < 4:
        said.append(f"R-hat needs two chains of four draws or more; got {mc.n_chains} of {n_draws}")
        remedies.append("run more chains (n_chains=4) and draws")
    apart = table[table["r_hat"] > R_HAT_LIMIT].sort_values("r_hat", ascending=False)
    for subject, line in apart.head(NAMED).iterrows():
        said.append(f"{subject}: R-hat {line['r_hat']:.2f} ({line['worst'].replace('_', ' ')})")
    if len(apart) > NAMED:
        said.append(f"R-hat above {R_HAT_LIMIT} for {len(apart) - NAMED} more (see table)")
    if len(modes) > 1:
        others = ", ".join(f"{_listed(mode.chains)} (log joint {mode.log_joint:.1f})" for mode in modes[1:])
        first = modes[0]
        said.append(
            f"{others} sit{'s' if sum(len(m.chains) for m in modes[1:]) == 1 else ''} in another mode than "
            f"{_listed(first.chains)} (log joint {first.log_joint:.1f})"
        )
        remedies.append(f'start from VI (init="auto"), or look at one mode: keep_chains({list(first.chains)})')
    few = table[table["ess_bulk"] < ESS_PER_CHAIN * mc.n_chains].sort_values("ess_bulk")
    if len(few):
        said.append(
            f"too few effective draws: {few['ess_bulk'].iloc[0]:.0f} for {few.index[0]}, where "
            f"{ESS_PER_CHAIN * mc.n_chains} are wanted"
        )
    if len(apart) or len(few):
        remedies.insert(0, "run longer (the same path with larger n_draws goes on)")
    if not said:
        return True, (
            f"{mc.n_chains} chains of {n_draws} draws agree: one mode, largest R-hat {table['r_hat'].max():.3f}, "
            f"at least {table['ess_bulk'].min():.0f} effective draws of everything. The draws can be used."
        )
    return False, f"Not to be trusted yet. {'; '.join(said)}. Remedy: {'; or '.join(remedies)}."


def _listed(chains: tuple[int, ...]) -> str:
    if len(chains) == 1:
        return f"chain {chains[0]}"
    return f"chains {', '.join(map(str, chains[:-1]))} and {chains[-1]}"
