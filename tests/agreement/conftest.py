"""What every comparison of an engine with the oracle needs."""

import pytest
from tests.agreement.engines import COMPARED

from sparsefactor.engine.threads import single_blas_thread

# Kernels in JAX are compiled anew for every shape and structure: of the grids below, these run every time.
GRIDS = {
    "test_vi_agrees": (
        "jax-1-plain-feature-False",
        "jax-3-tenth missing-sample-True",
        "jax-1-most missing-shared-False",
    ),
    "test_vi_agrees_at_extreme_scales": ("jax-1e+75-plain",),
    "test_vi_agrees_where_inclusion_is_certain": ("jax-0.0001",),
    "test_gibbs_agrees": ("jax-3-plain-sample-True",),
    "test_gibbs_agrees_at_extreme_scales": (),
    "test_gibbs_agrees_where_the_active_block_is_ill_conditioned": (),
    "test_module_pass_agrees": ("jax-tenth missing-feature",),
    "test_any_number_of_modules": (),
    "test_module_pass_agrees_at_extreme_scales": (),
    "test_module_pass_agrees_where_inclusion_and_module_are_certain": (),
    "test_module_pass_on_float32_data": (),
    "test_one_module_is_the_plain_pass": (),
    "test_rows_in_modules_have_their_modules_odds": (),
    "test_shears_agree": ("jax-none-None-inclusion1-0.3-sample", "jax-learnt-groups1-inclusion0-0.3-feature"),
    "test_rotations_agree": ("jax-none-None-inclusion0-0.3-feature", "jax-learnt-groups1-inclusion1-0.3-sample"),
    "test_columns_agree": ("jax-groups1-inclusion1-0.3-feature",),
}


def pytest_collection_modifyitems(items):
    for item in items:
        known = getattr(item, "originalname", None) in GRIDS and item.callspec.id.partition("-")[0] == "jax"
        if known and item.callspec.id not in GRIDS[item.originalname]:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True, scope="module")
def one_blas_thread():
    """Same bits on any number of threads are promised inside this."""
    with single_blas_thread():
        yield


@pytest.fixture(params=COMPARED)
def engine(request):
    """Builds an engine from data and prior."""
    return COMPARED[request.param]
