"""What every comparison of an engine with the oracle needs."""

import pytest
from tests.agreement.engines import COMPARED

from sparsefactor.engine.threads import single_blas_thread


@pytest.fixture(autouse=True, scope="module")
def one_blas_thread():
    """Same bits on any number of threads are promised inside this."""
    with single_blas_thread():
        yield


@pytest.fixture(params=COMPARED)
def engine(request):
    """Builds an engine from data and prior."""
    return COMPARED[request.param]
