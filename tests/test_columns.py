"""The columns' equations are one text for every array library: what each computes is what NumPy does."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import scipy.special
from tests.helpers.problems import MILD, random_vi_state, small_data

import sparsefactor as sf
from sparsefactor.arrays import NUMPY, Arrays, arrays_of
from sparsefactor.kernels import columns as equations
from sparsefactor.kernels.inclusion import inclusion_of
from sparsefactor.kernels.reference import ReferenceEngine
from sparsefactor.vi.cavi import CAVI
from sparsefactor.vi.modules import sorted_by, under_modules

G, N, K = 6, 5, 3


def strict() -> Arrays:
    """The standard and nothing beyond it; einsum and special functions by way of NumPy."""
    library = pytest.importorskip("array_api_strict")

    def through_numpy(function):
        return lambda *args, **kw: library.asarray(
            np.asarray(function(*(np.asarray(a) if hasattr(a, "shape") else a for a in args), **kw))
        )

    special = {name: through_numpy(getattr(scipy.special, name)) for name in Arrays._fields[3:]}
    return Arrays(library, through_numpy(np.einsum), library.log, **special)


def jax() -> Arrays:
    library = pytest.importorskip("jax")
    library.config.update("jax_enable_x64", True)
    return arrays_of(pytest.importorskip("jax.numpy"), pytest.importorskip("jax.scipy.special"))


class Case(NamedTuple):
    inclusion: str
    noise: str
    joint: bool
    missing: float
    correlation: str = "none"


CASES = [
    Case("given", "feature", False, 0.0),
    Case("given", "sample", True, 0.3),
    Case("learnt", "shared", True, 0.0),
    Case("learnt", "sample", False, 0.3),
    Case("groups", "feature", True, 0.3),
    Case("groups", "shared", False, 0.0),
    Case("modules", "feature", True, 0.0),
    Case("modules", "shared", False, 0.3),
    Case("learnt", "feature", True, 0.0, "learnt"),
    Case("groups", "sample", False, 0.3, "learnt"),
]


def problem(case: Case):
    """A sweep's state and the objects that go with it, in NumPy."""
    data = small_data(G, N, K, missing=case.missing)
    inclusion = np.array([0.2, 0.3, 0.7]) if case.inclusion == "given" else sf.Beta(1.5, 2.5)
    groups = ["a", "b"] * (G // 2) if case.inclusion == "groups" else None
    prior = sf.Prior(
        n_factors=K, inclusion=inclusion, noise=case.noise, groups=groups, factor_correlation=case.correlation, **MILD
    )
    cavi = CAVI(data, prior, ReferenceEngine(data, prior), joint=case.joint)
    state = random_vi_state(cavi)
    if case.inclusion == "modules":
        cavi = under_modules(cavi, 2)
        state = sorted_by(cavi, state, np.full((G, 2), 0.5) + 0.1 * np.arange(-3, 3)[:, None] * [1, -1])
    return cavi, state


def moved_to(on: Arrays, values):
    """Arrays, and named tuples of arrays, as the library has them."""
    if isinstance(values, tuple):
        return type(values)(*(moved_to(on, value) for value in values))
    return on.xp.asarray(values) if isinstance(values, np.ndarray) else values


def everything(cavi, state, on: Arrays) -> dict:
    """What the equations give, by name."""
    fixed, inclusion = equations.fixed_of(cavi.data, cavi.prior, on), inclusion_of(cavi.prior, cavi.data, on)
    columns, sums = moved_to(on, state.columns), moved_to(on, state.sums)
    scale = on.xp.asarray(np.linspace(0.5, 2.0, K))
    basis, spread, place = (on.xp.asarray(np.random.default_rng(0).random(shape)) for shape in ((2, N), (N, K), (2, 3)))
    new = equations.after_activations(columns, sums, inclusion, fixed)
    rescaled, by = equations.rescaled(new, fixed)
    slid = equations.slid(new, spread, basis, place, fixed)
    return {
        "message": equations.vi_message(rescaled, scale, inclusion, fixed),
        "rescaled": rescaled,
        "by": by,
        "slid": (slid.f_mean, slid.slide),
        "terms": equations.elbo_terms(rescaled, sums, inclusion, fixed),
        "explained": equations.explained(columns.f_mean, sums, fixed),
        "emptied": inclusion.emptied(new, 1),
        "rate": inclusion.rate(new),
        "extrapolated": inclusion.moved(new, 1.1 * inclusion.coordinates(new)),
    }


def flat(values) -> list[np.ndarray]:
    if isinstance(values, dict):
        return [array for value in values.values() for array in flat(value)]
    if isinstance(values, tuple):
        return [array for value in values for array in flat(value)]
    return [np.asarray(values)]


@pytest.mark.parametrize("library", [strict, jax])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_library_computes_the_same(case, library):
    on = library()
    cavi, state = problem(case)
    expected, found = flat(everything(cavi, state, NUMPY)), flat(everything(cavi, state, on))
    assert len(expected) == len(found) > 30
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_jax_compiles_a_column_step_and_its_elbo(case):
    on = jax()
    import jax as library

    cavi, state = problem(case)
    fixed, inclusion = equations.fixed_of(cavi.data, cavi.prior, on), inclusion_of(cavi.prior, cavi.data, on)

    @library.jit
    def step(columns, sums):
        columns, _ = equations.rescaled(equations.after_activations(columns, sums, inclusion, fixed), fixed)
        return sum(equations.elbo_terms(columns, sums, inclusion, fixed))

    new = equations.after_activations(state.columns, state.sums, cavi.inclusion, cavi.fixed)
    terms = equations.elbo_terms(equations.rescaled(new, cavi.fixed)[0], state.sums, cavi.inclusion, cavi.fixed)
    assert float(step(state.columns, state.sums)) == pytest.approx(sum(terms), rel=1e-10)


def test_a_beta_function_is_made_of_gammas_where_a_library_is_not_trusted_with_it():
    a, b = np.meshgrid(np.linspace(0.5, 20, 30), np.linspace(0.5, 20, 30))
    np.testing.assert_allclose(arrays_of(np, scipy.special).betaln(a, b), NUMPY.betaln(a, b), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("joint", [False, True])
def test_activations_at_a_point_have_no_entropy(joint):
    """And that is no reason for a warning, which tests would raise."""
    cavi, state = problem(Case("learnt", "feature", joint, 0.0))
    at_point = state.columns._replace(f_var=np.zeros_like(state.columns.f_var))
    assert equations.activations_term(at_point, cavi.fixed) == -np.inf
