"""The engines that are compared with the oracle: one line each."""

from tests.helpers.clusters import client_of

from sparsefactor.engine.cpu import CpuEngine
from sparsefactor.engine.dask.engine import DaskEngine
from sparsefactor.engine.jax_engine import JaxEngine
from sparsefactor.kernels.reference import ReferenceEngine

COMPARED = {
    "cpu": CpuEngine,
    "jax": JaxEngine,
}
# For what is quick, the oracle itself against a formula, and rows in blocks.
ENGINES = COMPARED | {
    "reference": ReferenceEngine,
    "cpu in blocks": lambda data, prior: CpuEngine(data, prior, 2, cuts=(1,), _split_small=True),
    "on workers": lambda data, prior: DaskEngine(data, prior, client_of(2)),
}
