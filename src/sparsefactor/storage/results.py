"""Save and load posteriors: one file (see zarr_file), whose groups `xarray.open_datatree` opens.

    posterior, sample_stats   draws, as ArviZ has them
    moments, or variational   the fields of the posterior, and of what it consists of, by their names

Fields are found by the dataclasses' own names, so that a new one needs no line here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..checks import checked_choice
from ..errors import TooLargeError
from ..explained import FitSums
from ..model import Beta, Prior
from ..posterior import (
    CORRELATION_DIMS,
    DIMS,
    GROUP_DIMS,
    MODULE_DIMS,
    NOISE_DIMS,
    Labels,
    MCMCPosterior,
    Posterior,
    Status,
    VIPosterior,
)
from ..version import __version__
from . import convert
from .draws import PRECISIONS, ROUNDED, is_single, rounded
from .lazy import LazyDraws, draws_per_block
from .validation import DamagedError, check_posterior
from .zarr_file import Stored, ZarrFile, write

RESULT = "result.sf"  # in the folder of a run or a fit
FORMAT, VERSION = "sparsefactor posterior", 3  # 1 and 2: see convert
CLASSES = {"VIPosterior": VIPosterior, "MCMCPosterior": MCMCPosterior}
GROUPS = {"VIPosterior": "variational", "MCMCPosterior": "moments"}
NESTED = {"prior": Prior, "inclusion": Beta, "labels": Labels, "fit_sums": FitSums}
COORDINATES = {"labels/feature_names": "feature", "labels/sample_names": "observation"}
FEW = 64  # numbers
# What a file may unpack to unless its reader allows more: sparse draws reach some eighty times their packed size.
LEAST_LIMIT = 256_000_000
LIMIT_RATIO = 200


def save(posterior: Posterior, path: str | PathLike[str], precision: str = "single") -> None:
    """Write a posterior to one file; a file already there is replaced whole or, on failure, left as it was.

    precision: of draws of loadings, activations and noise precisions; all else keeps every bit, and so do these
        with "double", at twice the size.
    """
    checked_choice("precision", precision, PRECISIONS)
    if not isinstance(posterior, VIPosterior | MCMCPosterior):
        raise TypeError(
            f"only a posterior can be saved; got a {type(posterior).__name__}; pass what fit_vi or sample returned"
        )
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"the directory of a saved posterior must exist; {str(target.parent)!r} does not; create it first"
        )
    if target.is_dir():
        raise IsADirectoryError(
            f"a posterior is saved to a file; {str(target)!r} is a folder; pass the name of a file (what was sampled "
            "with a path is already saved there)"
        )
    write_posterior(posterior, target, precision)


def load(path: str | PathLike[str], *, check: bool = True, max_bytes: int | None = None) -> VIPosterior | MCMCPosterior:
    """Read back what `save` wrote, or open the folder of a finished run; refuse anything else.

    Parameters
    ----------
    path : path
        A file of `save`, or the folder (`path`) of what `sample` or `fit_vi` finished.
    check : bool
        Verify every byte of a run's draws now. False opens a large run at once, or one of which a part is damaged:
        draws are verified in any case when they are read.
    max_bytes : int, optional
        What the file may unpack to in memory. By default 200 times its size and at least 256 MB.

    Returns
    -------
    VIPosterior or MCMCPosterior
        A run's draws stay on disk and are read when they are looked at.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=20, n_samples=10, inclusion=[0.5], snr=5, seed=0)
    >>> sf.fit_vi(sim.X, sf.Prior(n_factors=1), n_trials=1).save("fit.sf")
    >>> sf.load("fit.sf").n_factors
    1
    """
    if not Path(path).is_dir():
        return read_posterior(path, max_bytes)
    from .checkpoint import FIT, RUN, read_record  # which read results through this file

    folder = Path(path)
    kind = FIT if (folder / FIT.file).is_file() else RUN
    record = read_record(folder, kind, earlier=True)
    if record is None:
        raise ValueError(f"{str(folder)!r} is not a run of sparsefactor; pass a path that sample() wrote")
    if not (folder / RESULT).is_file():
        raise ValueError(
            f"a {kind.name} must be done before it is loaded; {str(folder)!r} is not; continue it: "
            f"{kind.writer.replace(')', '..., path=path)')}"
        )
    return read_result(folder, record, kind.name, check, max_bytes)


# ---- one file -----------------------------------------------------------------------------------------------------


def write_posterior(
    posterior: VIPosterior | MCMCPosterior, target: Path, precision: str = "double", token: str | None = None
) -> None:
    """Write a posterior to one file. token: of the run or the fit in whose folder it is."""
    name = type(posterior).__name__
    settings: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    groups: dict[str, dict[str, Any]] = {}
    _encode(posterior, "", GROUPS[name], settings, arrays)
    _name_dims(posterior, GROUPS[name], arrays)
    meta = {"format": FORMAT, "version": VERSION, "sparsefactor": __version__, "class": name, "token": token}
    if isinstance(posterior, MCMCPosterior):
        meta["dtypes"] = _encode_draws(posterior.draws, precision, arrays, groups)
    attributes = groups.pop("", {}) | {"sparsefactor": meta | {"settings": settings}}
    write(target, attributes, arrays, groups)


def _encode(value: Any, name: str, group: str, settings: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Sort a dataclass and all in it into what JSON holds, by name, and arrays, by group and name."""
    for field in fields(value):
        part, own = getattr(value, field.name), f"{name}/{field.name}".lstrip("/")
        if str(field.type).startswith(("Array", "NDArray")) and part is not None:
            part = np.asarray(part)
        if part is None or isinstance(part, xr.DataTree):
            continue
        if is_dataclass(part):
            _encode(part, own, group, settings, arrays)
        elif isinstance(part, np.ndarray):
            _encode_array(part, own, group, settings, arrays)
        elif isinstance(part, Mapping) and any(isinstance(inner, np.ndarray) for inner in part.values()):
            settings[own] = {"keys": list(part)}
            for key, inner in part.items():
                _encode_array(np.asarray(inner), f"{own}/{key}", group, settings, arrays)
        else:
            settings[own] = part.name if isinstance(part, Enum) else part


def _encode_array(
    values: NDArray[Any], name: str, group: str, settings: dict[str, Any], arrays: dict[str, Any]
) -> None:
    """Few numbers of an inner dataclass take less space as JSON."""
    if "/" in name and name not in COORDINATES and values.size <= FEW and values.dtype.kind in "biuf":
        settings[name] = {"array": values.ravel().tolist(), "shape": list(values.shape), "dtype": values.dtype.str}
    else:
        arrays[f"{group}/{COORDINATES.get(name, name)}"] = values


def _decode_setting(value: Any) -> Any:
    if not isinstance(value, dict) or value.keys() != {"array", "shape", "dtype"}:
        return value
    dtype = np.dtype(value["dtype"])
    if dtype.kind not in "biuf" or len(value["array"]) > FEW:
        raise DamagedError(f"is damaged (an array of {len(value['array'])} {dtype})")
    return np.array(value["array"], dtype=dtype).reshape(value["shape"])


def _name_dims(posterior: VIPosterior | MCMCPosterior, group: str, arrays: dict[str, Any]) -> None:
    """Name the axes that have the same meaning in several arrays; any other axis gets a name of its own."""
    prior = posterior.prior
    own = DIMS | (GROUP_DIMS if prior.grouped else {}) | {"noise_precision": NOISE_DIMS[prior.noise]}
    known = {f"{name}_{what}": dims for name, dims in own.items() for what in ("mean", "sd", "prob")}
    known |= {f"factor_correlation_{what}": CORRELATION_DIMS["factor_correlation"] for what in ("mean", "sd")}
    known |= MODULE_DIMS | {"signal_mean": ("observation", "feature"), "stability": ("factor",)}
    known |= dict.fromkeys(("permutations", "signs"), ("chain", "draw", "factor"))
    known |= {name: (name,) for name in COORDINATES.values()}
    for name, dims in known.items():
        values = arrays.get(f"{group}/{name}")
        if values is not None and values.size and values.ndim == len(dims):
            arrays[f"{group}/{name}"] = Stored(values, dims)


def _encode_draws(
    tree: xr.DataTree, precision: str, arrays: dict[str, Any], groups: dict[str, dict[str, Any]]
) -> dict[str, str]:
    """Add a tree's variables and attributes; which of them have another type than they are stored as."""
    dtypes = {}
    for path, node in tree.subtree_with_keys:
        data, place = node.to_dataset(inherit=False), "" if path == "." else path
        others = [str(name) for name in data.coords if name not in data.dims]
        groups[place] = dict(data.attrs) | ({"coordinates": " ".join(others)} if others else {})
        for label, variable in data.variables.items():
            name = f"{place}/{label}".lstrip("/")
            values: Any = variable
            draws = variable.dims[:2] == ("chain", "draw")
            dtype = None
            if draws and variable.dtype == np.float64:
                if precision == "single" and label in ROUNDED:
                    values = _Rounded(variable)
                if _all_single(values):
                    dtype, dtypes[name] = np.float32, variable.dtype.str
            attributes = {str(key): value for key, value in variable.attrs.items()}
            dims = tuple(map(str, variable.dims))
            arrays[name] = Stored(values if draws else variable.values, dims, attributes, dtype, draws)
    return dtypes


class _Rounded:
    """Draws rounded to single precision as they are read."""

    def __init__(self, variable: xr.Variable) -> None:
        self.variable, self.shape, self.dtype = variable, variable.shape, variable.dtype

    def __getitem__(self, key: Any) -> NDArray[Any]:
        return rounded(self.variable[key].values)


def _all_single(values: Any) -> bool:
    step = draws_per_block(values.shape[2:], np.float64)
    parts = (
        np.asarray(values[chain, first : first + step])
        for chain in range(values.shape[0])
        for first in range(0, values.shape[1], step)
    )
    return all(is_single(part) for part in parts)


def read_posterior(
    path: str | PathLike[str], max_bytes: int | None = None, lazy: bool = False, check: bool = True
) -> VIPosterior | MCMCPosterior:
    """The posterior in one file. lazy: its draws stay there; check: verify every byte now."""
    limit = max(LEAST_LIMIT, LIMIT_RATIO * Path(path).stat().st_size) if max_bytes is None else max_bytes
    if convert.is_earlier(path):
        return convert.read_file(path, limit)
    try:
        file = ZarrFile(path)
        meta = file.attributes.get("sparsefactor")
        if not isinstance(meta, dict) or meta.get("format") != FORMAT or not isinstance(meta.get("version"), int):
            raise DamagedError("is not a sparsefactor result")
        if meta["version"] != VERSION:
            raise DamagedError(f"has format version {meta['version']}, this sparsefactor reads {VERSION}: upgrade it")
        group = GROUPS[meta["class"]]
        own = {name.removeprefix(f"{group}/") for name in file.arrays if name.startswith(f"{group}/")}
        if check:
            file.check()
        file.check_size([f"{group}/{name}" for name in own] if lazy else file.arrays, limit)
        given = {"draws": _decode_draws(file, group, meta["dtypes"], lazy)} if group == "moments" else {}
        kind = CLASSES[meta["class"]]
        return build(kind, own, lambda name: file.read(f"{group}/{name}"), meta["settings"], **given)
    except TooLargeError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError) as problem:
        text = problem if isinstance(problem, DamagedError) else f"is damaged ({problem})"
        raise ValueError(
            f"a sparsefactor result must be whole; {str(path)!r} {text}; save it again or use a copy"
        ) from problem


def build(
    kind: Any, names: Collection[str], read: Callable[[str], Any], settings: Mapping[str, Any], **given: Any
) -> Any:
    """A posterior of arrays and settings by name; what is not there is left to the dataclass's default."""
    values = _decode(kind, "", names, read, settings) | given
    check_posterior(values)
    return kind(**values)


def _decode(
    kind: Any, name: str, names: Collection[str], read: Callable[[str], Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in fields(kind):
        own = f"{name}/{field.name}".lstrip("/")
        inner = any(other.startswith(f"{own}/") for other in (*names, *settings))
        if COORDINATES.get(own, own) in names:
            values[field.name] = read(COORDINATES.get(own, own))
        elif field.name in NESTED and inner:
            nested = NESTED[field.name]
            values[field.name] = nested(**_decode(nested, own, names, read, settings))
        elif inner:
            keys = settings[own]["keys"]
            places = {key: f"{own}/{key}" for key in keys}
            values[field.name] = {
                key: read(place) if place in names else _decode_setting(settings[place])
                for key, place in places.items()
            }
        elif own in settings:
            values[field.name] = _decode_setting(settings[own])
    if kind is Labels:
        values["container"] = tuple(values["container"])
    if "status" in values:
        values["status"] = Status[values["status"]]
    return values


def _decode_draws(file: ZarrFile, group: str, dtypes: Mapping[str, str], lazy: bool) -> xr.DataTree:
    datasets = {}
    for place, given in {"": file.attributes, **file.groups}.items():
        if place == group or place.startswith(f"{group}/"):
            continue
        attributes = {name: value for name, value in given.items() if name != "sparsefactor"}
        others = attributes.pop("coordinates", "").split()
        parts: dict[bool, dict[str, Any]] = {True: {}, False: {}}
        for name, info in file.arrays.items():
            parent, _, label = name.rpartition("/")
            if parent != place:
                continue
            dtype = np.dtype(dtypes.get(name, info.dtype if info.dtype != "string" else "<U1"))
            if dtype.kind not in "biufU":
                raise DamagedError(f"is damaged ({name} has type {dtype})")
            if lazy and info.draws:
                read = partial(_read_draws, file, name)
                variable = LazyDraws(read, info.shape, dtype).variable(info.dims)
            else:
                values = file.read(name)
                variable = xr.Variable(info.dims, values.astype(dtype, copy=False) if name in dtypes else values)
            variable.attrs.update(info.attributes)
            parts[info.dims == (label,) or label in others][label] = variable
        datasets[place or "/"] = xr.Dataset(parts[False], coords=parts[True], attrs=attributes)
    return xr.DataTree.from_dict(datasets)


def _read_draws(file: ZarrFile, name: str, chain: int, first: int, last: int) -> NDArray[Any]:
    ranges = [(chain, chain + 1), (first, last), *((0, n) for n in file.arrays[name].shape[2:])]
    try:
        return file.read(name, ranges)[0]
    except DamagedError as problem:
        raise ValueError(
            f"all draws of a run must be on disk, whole; {str(file.path)!r} {problem}; restore it from a copy, or "
            "sample again with another path; sf.load(path, check=False) opens the run for what is whole"
        ) from problem


# ---- the result in the folder of a run or a fit -------------------------------------------------------------------


def read_result(
    folder: Path, record: Mapping[str, Any], what: str, check: bool = True, max_bytes: int | None = None
) -> Any:
    """What the run or the fit in `folder` found when it was last done. A run's draws stay on disk."""
    if record.get("earlier"):
        return convert.read_folder(folder, record, max_bytes)
    path, kind = folder / RESULT, {"run": MCMCPosterior, "fit": VIPosterior}[what]
    try:
        token = ZarrFile(path).attributes["sparsefactor"]["token"]
    except (DamagedError, KeyError, TypeError):
        token = None if convert.is_earlier(path) else record["token"]  # what is damaged is named below
    result = read_posterior(path, max_bytes, lazy=True, check=check) if token == record["token"] else None
    if not isinstance(result, kind):
        raise ValueError(
            f"{RESULT} in a {what}'s folder must be that {what}'s own; {str(path)!r} is something else; put the right "
            f"one back, or remove it and call {'sample' if what == 'run' else 'fit_vi'} again with the same path"
        )
    return result
