"""Draws in one file: a DataTree as members of an archive, its draws packed chain by chain."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .draws import ROUNDED
from .packing import pack_bits, pack_floats, rounded, unpack_bits, unpack_floats

if TYPE_CHECKING:
    import xarray

Members = dict[str, NDArray[Any] | bytes]
Groups = list[dict[str, Any]]

MASK, MASKED = "inclusion", "loadings"


def encode_tree(tree: xarray.DataTree, precision: str) -> tuple[Groups, Members]:
    """Every group of a DataTree: its attributes, and its variables with dims and attributes."""
    groups: Groups = []
    members: Members = {}
    for path, node in tree.subtree_with_keys:
        data = node.to_dataset(inherit=False)
        variables: list[dict[str, Any]] = []
        for name, variable in data.variables.items():
            stored: dict[str, Any] = {
                "name": name,
                "member": f"draws/{len(groups)}-{len(variables)}-{name}",
                "dims": list(variable.dims),
                "is_coord": name in data.coords,
                "attrs": variable.attrs,
            }
            if variable.dims[:2] == ("chain", "draw") and variable.dtype.str in ("<f4", "<f8", "|i1", "|b1"):
                packed = _pack(str(name), data, precision)
                if packed is not None:
                    kind, parts = packed
                    stored |= {"packed": kind, "shape": list(variable.shape), "dtype": variable.dtype.str}
                    members |= {f"{stored['member']}.{chain}": part for chain, part in enumerate(parts)}
            if "packed" not in stored:
                members[stored["member"]] = variable.values
            variables.append(stored)
        groups.append({"path": path, "attrs": data.attrs, "variables": variables})
    return groups, members


def _pack(name: str, data: xarray.Dataset, precision: str) -> tuple[str, list[bytes]] | None:
    """A variable of draws, chain by chain; None where it is neither floats nor zeros and ones."""
    variable = data[name].variable
    parts = []
    for chain in range(variable.shape[0]):
        values = variable[chain].values
        if values.dtype.kind == "f":
            single = precision == "single" and name in ROUNDED
            values = rounded(values) if single and values.dtype == np.float64 else values
            parts.append(pack_floats(values, _mask(name, data, chain)))
        elif _binary(values):
            parts.append(pack_bits(values))
        else:
            return None
    return "floats" if variable.dtype.kind == "f" else "bits", parts


def _mask(name: str, data: xarray.Dataset, chain: int) -> NDArray[Any] | None:
    if name != MASKED or MASK not in data or data[MASK].dims != data[MASKED].dims:
        return None
    mask = data[MASK].variable[chain].values
    return mask if mask.dtype.kind in "bi" and _binary(mask) else None


def _binary(values: NDArray[Any]) -> bool:
    return values.dtype.kind == "b" or not values.size or bool(values.min() >= 0 and values.max() <= 1)


def unpacked_bytes(groups: Groups) -> int:
    """What the packed draws will take in memory, by what the file says of them."""
    total = 0
    for stored in (stored for group in groups for stored in group["variables"] if "packed" in stored):
        if not all(isinstance(n, int) and n >= 0 for n in stored["shape"]) or len(stored["shape"]) < 2:
            raise ValueError(f"{stored['name']} has shape {stored['shape']}")
        if stored["dtype"] not in ("<f4", "<f8", "|i1", "|b1"):
            raise ValueError(f"{stored['name']} has type {stored['dtype']!r}")
        total += math.prod(stored["shape"]) * np.dtype(stored["dtype"]).itemsize
    return total


def decode_tree(groups: Groups, members: dict[str, Any]) -> xarray.DataTree:
    import xarray as xr

    datasets = {}
    for group in groups:
        parts: dict[bool, dict[str, Any]] = {True: {}, False: {}}
        mask = next((stored for stored in group["variables"] if stored["name"] == MASK and "packed" in stored), None)
        for stored in group["variables"]:
            masked = mask if stored["name"] == MASKED else None
            values = _unpack(stored, members, masked) if "packed" in stored else members[stored["member"]]
            parts[stored["is_coord"]][stored["name"]] = xr.Variable(tuple(stored["dims"]), values, stored["attrs"])
        datasets[group["path"]] = xr.Dataset(parts[False], coords=parts[True], attrs=group["attrs"])
    return xr.DataTree.from_dict(datasets)


def _unpack(stored: dict[str, Any], members: dict[str, Any], mask: dict[str, Any] | None) -> NDArray[Any]:
    n_chains, *own = stored["shape"]
    dtype = np.dtype(stored["dtype"])
    out = np.empty((n_chains, *own), dtype=dtype)
    for chain in range(n_chains):
        content = members[f"{stored['member']}.{chain}"]
        if stored["packed"] == "bits":
            out[chain] = unpack_bits(content, tuple(own), dtype)
        else:
            where = None
            if mask is not None and mask["shape"] == stored["shape"]:
                where = unpack_bits(members[f"{mask['member']}.{chain}"], tuple(own), np.int8)
            out[chain] = unpack_floats(content, tuple(own), where)
    return out
