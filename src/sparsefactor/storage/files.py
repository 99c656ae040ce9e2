"""Posteriors on disk: one zip file of .npy members and a meta.json, without pickle, written atomically."""

from __future__ import annotations

import errno
import json
import os
import secrets
import zipfile
import zlib
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..explained import FitSums
from ..model import Beta, Prior
from ..posterior import Labels, MCMCPosterior, Status, VIPosterior, _Posterior

if TYPE_CHECKING:
    import xarray

FORMAT = "sparsefactor posterior"
VERSION = 1
CLASSES: dict[str, type[VIPosterior] | type[MCMCPosterior]] = {
    "VIPosterior": VIPosterior,
    "MCMCPosterior": MCMCPosterior,
}
# Fields that are not a plain array; each has its own lines below.
SPECIAL = {
    "prior",
    "labels",
    "elbo",
    "elbo_terms",
    "elbo_history",
    "trial_records",
    "status",
    "parameters",
    "draws",
    "fit_sums",
    "record",
}
PRIOR_SCALARS = ("n_factors", "noise", "noise_shape", "noise_rate", "loading_shape", "loading_rate", "n_modules")
# Draws are mostly noise, which no level compresses; the zeros of sparse loadings, the first level does.
COMPRESSION_LEVEL = 1

Arrays = dict[str, NDArray[Any]]


def save(posterior: _Posterior, path: str | PathLike[str]) -> None:
    """Write a posterior to one file; a file already there is replaced whole or, on failure, left as it was."""
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
    write_file(posterior, target)


def write_file(posterior: VIPosterior | MCMCPosterior, target: Path) -> None:
    """Write a posterior to one file, whole or not at all."""
    name = "VIPosterior" if isinstance(posterior, VIPosterior) else "MCMCPosterior"
    meta, arrays = _encode(posterior)
    head = {"format": FORMAT, "version": VERSION, "class": name, "members": list(arrays)}
    text = json.dumps({**head, **meta}, default=_as_json)
    # In the same directory, so that the last step is a rename within one file system.
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        with temporary.open("xb") as file:
            _write(file, text, arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(target.parent)


def load(path: str | PathLike[str]) -> VIPosterior | MCMCPosterior:
    """Read back what `save` wrote, or open the folder of a finished run; refuse anything else."""
    if Path(path).is_dir():
        from .result import load_run  # it reads through this file

        return load_run(Path(path).absolute())  # its draws are read later, wherever the process may be by then
    return read_file(path)


def read_file(path: str | PathLike[str]) -> VIPosterior | MCMCPosterior:
    """The posterior in one file."""
    try:
        with zipfile.ZipFile(path) as archive:
            meta = _read_meta(archive, path)
            return _decode(meta, _read_arrays(archive, meta["members"]))
    except zipfile.BadZipFile as problem:
        if zipfile.is_zipfile(path):
            raise _damaged(path, problem) from problem
        raise ValueError(
            f"a sparsefactor result is a zip file; {str(path)!r} is none, or was cut short; "
            "pass a file that save() wrote"
        ) from problem
    except (zlib.error, EOFError, KeyError, TypeError, NotImplementedError, RuntimeError) as problem:
        raise _damaged(path, problem) from problem
    except OSError as problem:
        # A damaged table of contents points outside the file; all else is about the file as a whole.
        if problem.errno != errno.EINVAL:
            raise
        raise _damaged(path, problem) from problem


def _damaged(path: str | PathLike[str], problem: Exception) -> ValueError:
    return ValueError(
        f"a sparsefactor result must be whole; {str(path)!r} is damaged ({problem}); save it again or use a copy"
    )


# ---- files --------------------------------------------------------------------------------------------------------


def _write(file: IO[bytes], text: str, arrays: Arrays) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=COMPRESSION_LEVEL) as archive:
        archive.writestr("meta.json", text)
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, values, allow_pickle=False)


def _read_meta(archive: zipfile.ZipFile, path: str | PathLike[str]) -> dict[str, Any]:
    try:
        meta = json.loads(archive.read("meta.json"))
    except (KeyError, ValueError):
        meta = None
    if not isinstance(meta, dict) or meta.get("format") != FORMAT or not isinstance(meta.get("version"), int):
        raise ValueError(
            f"{str(path)!r} is not a sparsefactor result: its meta.json does not say so; pass a file that save() wrote"
        )
    if meta["version"] > VERSION:
        raise ValueError(
            f"this sparsefactor reads results up to format version {VERSION}; {str(path)!r} has version "
            f"{meta['version']}; upgrade sparsefactor"
        )
    return meta


def _read_arrays(archive: zipfile.ZipFile, names: list[str]) -> Arrays:
    # Every checksum is verified before any array is made of what was read.
    bad = archive.testzip()
    if bad is not None:
        raise zipfile.BadZipFile(f"wrong checksum of {bad}")
    arrays = {}
    for name in names:
        with archive.open(f"{name}.npy") as member:
            arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
    return arrays


def _sync_directory(directory: Path) -> None:
    """Make the rename itself durable, where the file system lets a directory be opened."""
    try:
        handle = os.open(directory, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


# ---- posteriors ---------------------------------------------------------------------------------------------------


def _encode(posterior: VIPosterior | MCMCPosterior) -> tuple[dict[str, Any], Arrays]:
    """Split a posterior into what JSON holds and what .npy members hold."""
    arrays = {
        f"fields/{field.name}": np.asarray(getattr(posterior, field.name))
        for field in fields(posterior)
        if field.name not in SPECIAL and getattr(posterior, field.name) is not None
    }
    arrays |= {f"labels/{field.name}": np.asarray(getattr(posterior.labels, field.name)) for field in fields(Labels)}
    if posterior.fit_sums is not None:
        arrays |= {f"fit_sums/{field.name}": getattr(posterior.fit_sums, field.name) for field in fields(FitSums)}
    prior = posterior.prior
    meta: dict[str, Any] = {"prior": {name: getattr(prior, name) for name in PRIOR_SCALARS}, "record": posterior.record}
    if isinstance(prior.inclusion, Beta):
        meta["prior"]["beta"] = [prior.inclusion.a, prior.inclusion.b]
    else:
        arrays["prior/inclusion"] = prior.inclusion
    if isinstance(posterior, VIPosterior):
        meta |= {
            "elbo": posterior.elbo,
            "elbo_terms": posterior.elbo_terms,
            "trial_records": posterior.trial_records,
            "status": posterior.status.name,
        }
        arrays |= {f"elbo_history/{name}": np.asarray(v) for name, v in posterior.elbo_history.items()}
        arrays |= {f"parameters/{name}": np.asarray(v) for name, v in posterior.parameters.items()}
    else:
        meta["draws"], tree_arrays = _encode_tree(posterior.draws)
        arrays |= tree_arrays
    return meta, {name: _plain(name, values) for name, values in arrays.items()}


def _decode(meta: dict[str, Any], arrays: Arrays) -> VIPosterior | MCMCPosterior:
    stored = dict(meta["prior"])
    beta = stored.pop("beta", None)
    inclusion = arrays["prior/inclusion"] if beta is None else Beta(*beta)
    values: dict[str, Any] = _folder(arrays, "fields")
    labels = _folder(arrays, "labels")
    if "container" in labels:
        labels["container"] = tuple(labels["container"].tolist())
    values |= {
        "prior": Prior(inclusion=inclusion, **stored),
        "labels": Labels(**labels),
        "fit_sums": FitSums(**sums) if (sums := _folder(arrays, "fit_sums")) else None,
        "record": meta.get("record", {}),
    }
    kind = CLASSES[meta["class"]]
    if kind is MCMCPosterior:
        values["draws"] = _decode_tree(meta["draws"], arrays)
        return MCMCPosterior(**values)
    return VIPosterior(
        **values,
        elbo=meta["elbo"],
        elbo_terms=meta["elbo_terms"],
        elbo_history=_folder(arrays, "elbo_history"),
        trial_records=meta["trial_records"],
        status=Status[meta["status"]],
        parameters=_folder(arrays, "parameters"),
    )


def _encode_tree(tree: xarray.DataTree) -> tuple[list[dict[str, Any]], Arrays]:
    """Every group of a DataTree: its attributes, and its variables with dims and attributes."""
    groups: list[dict[str, Any]] = []
    arrays: Arrays = {}
    for path, node in tree.subtree_with_keys:
        data = node.to_dataset(inherit=False)
        variables = []
        for name, variable in data.variables.items():
            member = f"draws/{len(arrays)}-{name}"
            arrays[member] = variable.values
            variables.append(
                {
                    "name": name,
                    "member": member,
                    "dims": list(variable.dims),
                    "is_coord": name in data.coords,
                    "attrs": variable.attrs,
                }
            )
        groups.append({"path": path, "attrs": data.attrs, "variables": variables})
    return groups, arrays


def _decode_tree(groups: list[dict[str, Any]], arrays: Arrays) -> xarray.DataTree:
    import xarray as xr

    datasets = {}
    for group in groups:
        parts: dict[bool, dict[str, Any]] = {True: {}, False: {}}
        for stored in group["variables"]:
            variable = xr.Variable(tuple(stored["dims"]), arrays[stored["member"]], stored["attrs"])
            parts[stored["is_coord"]][stored["name"]] = variable
        datasets[group["path"]] = xr.Dataset(parts[False], coords=parts[True], attrs=group["attrs"])
    return xr.DataTree.from_dict(datasets)


def _folder(arrays: Arrays, folder: str) -> dict[str, Any]:
    prefix = f"{folder}/"
    return {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}


def _plain(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """An array that needs no pickle; strings kept as objects become NumPy strings."""
    if values.dtype.kind in "OT":
        if not all(isinstance(value, str) for value in values.flat):
            raise TypeError(f"only numbers and strings can be saved; {name!r} holds objects; convert it")
        return values.astype(str)
    return values


def _as_json(value: Any) -> Any:
    """NumPy scalars and arrays among attributes and trial records, as their Python equals."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"only numbers, strings and lists can be saved as attributes; got {value!r}; convert it")
