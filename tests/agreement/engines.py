"""The engines that are compared with the oracle: one line each."""

from sparsefactor.engine.cpu import CpuKernels
from sparsefactor.kernels.reference import ReferenceKernels

COMPARED = {
    "cpu": CpuKernels,
}
# For what is quick, the oracle itself against a formula, and rows in blocks.
ENGINES = COMPARED | {
    "reference": ReferenceKernels,
    "cpu in blocks": lambda data, prior: CpuKernels(data, prior, 2, cuts=(1,), _split_small=True),
}
