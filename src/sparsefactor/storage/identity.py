"""Digests by which a run on disk is recognised: of its data and its prior."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from typing import Any

import numpy as np

from ..data import Data, chunks_of
from ..model import Beta, Prior


def digest(*values: Any) -> str:
    """A hash of arrays, numbers and text by content."""
    total = hashlib.sha256()
    for value in values:
        array = value if len(getattr(value, "shape", ())) == 2 else np.ascontiguousarray(value)
        total.update(f"{array.dtype.str}{array.shape}".encode())
        # A matrix a few rows at a time: it may be in a file, or with others.
        parts = (array[rows] for rows in chunks_of(array)) if array.ndim == 2 else (array,)
        for part in parts:
            total.update(np.ascontiguousarray(part).tobytes())
    return total.hexdigest()[:32]


def prior_digest(prior: Prior) -> str:
    """Of all that a prior says."""
    beta = isinstance(prior.inclusion, Beta)
    given = [float(prior.inclusion.a), float(prior.inclusion.b)] if beta else [prior.inclusion]
    # Left out where it is one, so that runs from before there were modules are known again.
    left_out = {"inclusion", "groups", "factor_names", "parallel_analysis"} | (
        {"n_modules"} if prior.n_modules == 1 else set()
    )
    given += [] if prior.groups is None else [np.asarray(prior.groups)]
    named = {f.name: getattr(prior, f.name) for f in fields(prior) if f.name not in left_out}
    named |= {
        name: np.asarray(value, float).tolist() for name, value in named.items() if name.endswith(("_shape", "_rate"))
    }
    return digest(type(prior.inclusion).__name__, *given, json.dumps(named, default=str, sort_keys=True))


def measures_digest(data: Data) -> str:
    """Of data by their names, sums and sums of squares, which are known without reading them again."""
    names = [data.feature_names.astype(str), data.sample_names.astype(str)]
    sums = [data.row_count, data.row_sum, data.row_ss, data.column_ss]
    design = [] if data.design is None else [data.design.basis, str(data.design.slab)]
    return digest(*sums, data.offset, data.scale, data.unit, *names, *design, data.is_single)
