"""The engines that agreement tests compare with the oracle: one line each."""

from sparsefactor.engine.cpu import CpuKernels
from sparsefactor.kernels.reference import ReferenceKernels

ENGINES = {
    "reference": ReferenceKernels,
    "cpu": CpuKernels,
    "cpu in blocks": lambda data, prior: CpuKernels(data, prior, 2, cuts=(1,), _split_small=True),
}
