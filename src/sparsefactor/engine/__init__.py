"""Who runs the row pass: the oracle on one core, or compiled kernels over threads."""

from __future__ import annotations

from ..data import Data
from ..kernels.contract import Kernels
from ..kernels.reference import ReferenceKernels
from ..model import Prior

BACKENDS = ("auto", "reference")


def build_kernels(data: Data, prior: Prior, backend: str = "auto") -> Kernels:
    """The engine called `backend` for this data and prior."""
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {BACKENDS}; got {backend!r}; choose one of them")
    return ReferenceKernels(data, prior)
