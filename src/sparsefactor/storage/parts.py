"""A posterior as parts of a file: what JSON holds, arrays and packed draws; and back, if they belong together."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..explained import FitSums
from ..model import Beta, Prior
from ..posterior import NOISE_DIMS, Labels, MCMCPosterior, Status, VIPosterior
from .trees import Members, decode_tree, encode_tree

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
    "trial_history",
}
PRIOR_SCALARS = (
    "n_factors",
    "noise",
    "factor_correlation",
    "noise_shape",
    "noise_rate",
    "loading_shape",
    "loading_rate",
    "n_modules",
    "factor_names",
    "parallel_analysis",
)

Arrays = dict[str, NDArray[Any]]


def encode(posterior: VIPosterior | MCMCPosterior, precision: str) -> tuple[dict[str, Any], Members]:
    """Split a posterior into what JSON holds and what members of the archive hold."""
    arrays: Arrays = {
        f"fields/{field.name}": np.asarray(getattr(posterior, field.name))
        for field in fields(posterior)
        if field.name not in SPECIAL and getattr(posterior, field.name) is not None
    }
    arrays |= {f"labels/{field.name}": np.asarray(getattr(posterior.labels, field.name)) for field in fields(Labels)}
    if posterior.fit_sums is not None:
        sums = {field.name: getattr(posterior.fit_sums, field.name) for field in fields(FitSums)}
        arrays |= {f"fit_sums/{name}": np.asarray(values) for name, values in sums.items() if values is not None}
    prior = posterior.prior
    meta: dict[str, Any] = {"prior": {name: getattr(prior, name) for name in PRIOR_SCALARS}, "record": posterior.record}
    if prior.groups is not None:
        arrays["prior/groups"] = prior.groups
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
        arrays |= {f"trial_history/{name}": np.asarray(v) for name, v in posterior.trial_history.items()}
        arrays |= {f"parameters/{name}": np.asarray(v) for name, v in posterior.parameters.items()}
    members: Members = dict(arrays)
    if isinstance(posterior, MCMCPosterior):
        meta["draws"], tree = encode_tree(posterior.draws, precision)
        members |= tree
    return meta, {name: v if isinstance(v, bytes) else _plain(name, v) for name, v in members.items()}


def decode(meta: dict[str, Any], arrays: dict[str, Any]) -> VIPosterior | MCMCPosterior:
    stored = {"factor_correlation": "none"} | meta["prior"]  # results of before it existed have none
    beta = stored.pop("beta", None)
    inclusion = arrays["prior/inclusion"] if beta is None else Beta(*beta)
    values: dict[str, Any] = _folder(arrays, "fields")
    labels = _folder(arrays, "labels")
    if "container" in labels:
        labels["container"] = tuple(labels["container"].tolist())
    values |= {
        "prior": Prior(inclusion=inclusion, groups=arrays.get("prior/groups"), **stored),
        "labels": Labels(**labels),
        "fit_sums": FitSums(**sums) if (sums := _folder(arrays, "fit_sums")) else None,
        "record": dict(meta.get("record", {})),
    }
    _check_shapes(values)
    kind = CLASSES[meta["class"]]
    if kind is MCMCPosterior:
        values["draws"] = decode_tree(meta["draws"], arrays)
        return MCMCPosterior(**values)
    return VIPosterior(
        **values,
        elbo=meta["elbo"],
        elbo_terms=meta["elbo_terms"],
        elbo_history=_folder(arrays, "elbo_history"),
        trial_records=meta["trial_records"],
        status=Status[meta["status"]],
        parameters=_folder(arrays, "parameters"),
        trial_history=_folder(arrays, "trial_history"),
    )


def _check_shapes(values: dict[str, Any]) -> None:
    """Refuse arrays that do not belong to one model."""
    G, K = values["loadings_mean"].shape
    N, _ = values["activations_mean"].shape
    size = {"feature": (G,), "observation": (N,)}
    noise: tuple[int, ...] = ()
    for dim in NOISE_DIMS[values["prior"].noise]:
        noise = size[dim]
    labels, prior = values["labels"], values["prior"]
    by_group = (len(prior.group_names), K) if prior.grouped else (K,)
    for name, array, shape in [
        *((name, values[name], (G, K)) for name in ("loadings_mean", "loadings_sd", "inclusion_prob")),
        *((name, values[name], (N, K)) for name in ("activations_mean", "activations_sd")),
        ("loading_precision_mean", values["loading_precision_mean"], by_group),
        ("noise_precision_mean", values["noise_precision_mean"], noise),
        ("feature_names", labels.feature_names, (G,)),
        ("sample_names", labels.sample_names, (N,)),
        ("offset", labels.offset, (G,)),
    ]:
        if array.shape != shape:
            raise ValueError(f"{name} has shape {array.shape}, not {shape}")
    if "permutations" in values:
        order = values["permutations"]
        if values["prior"].K != K or order.ndim != 3 or order.shape[2] != K or values["signs"].shape != order.shape:
            raise ValueError(f"permutations have shape {order.shape} for {K} factors")
        if order.dtype.kind != "i" or (np.sort(order, axis=-1) != np.arange(K)).any():
            raise ValueError("permutations do not permute the factors")
        if values["signal_mean"].shape != (N, G):
            raise ValueError(f"signal_mean has shape {values['signal_mean'].shape}, not {(N, G)}")


def _folder(arrays: dict[str, Any], folder: str) -> dict[str, Any]:
    prefix = f"{folder}/"
    return {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}


def _plain(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """An array that needs no pickle; strings kept as objects become NumPy strings."""
    if values.dtype.kind in "OT":
        if not all(isinstance(value, str) for value in values.flat):
            raise TypeError(f"only numbers and strings can be saved; {name!r} holds objects; convert it")
        return values.astype(str)
    return values


def as_json(value: Any) -> Any:
    """NumPy scalars and arrays among attributes and trial records, as their Python equals."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"only numbers, strings and lists can be saved as attributes; got {value!r}; convert it")
