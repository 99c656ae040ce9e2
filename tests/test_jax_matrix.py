"""What is asked of the data matrix entry by entry, by parts of its rows in turn."""

from __future__ import annotations

from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import pytest

import sparsefactor as sf
from sparsefactor.data import as_data
from sparsefactor.engine.jax_engine import JaxEngine
from sparsefactor.kernels.jax import matrix
from sparsefactor.kernels.jax.library import x64

G, N, K = 46, 17, 3


class Asked(NamedTuple):
    """A problem, and all that is asked of its matrix."""

    engine: JaxEngine
    L: np.ndarray
    F: np.ndarray
    by_name: dict[str, tuple[Any, ...]]

    def answers(self, n_devices: int) -> dict[str, np.ndarray]:
        problem, kind = self.engine.problem, self.engine.kind._replace(n_devices=n_devices)
        with x64():
            found = {name: getattr(matrix, name)(problem, *args, kind=kind) for name, args in self.by_name.items()}
            found |= {f"rss {over}": matrix.rss(problem, self.L, self.F, kind=kind, over=over) for over in (0, 1)}
            return {name: np.asarray(value) for name, value in found.items()}


@cache
def asked(missing: float) -> Asked:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, G))
    X[rng.random(X.shape) < missing] = np.nan
    L, F, V, C = (rng.standard_normal(shape) for shape in ((G, K), (K, N), (N, K), (2, N)))
    left, right = (rng.standard_normal((n, 2)) for n in (G, N))
    seen = matrix.Seen(np.float64(2.0), rng.standard_normal((G, 2)), C, left, right)
    by_name = {
        "gram": (seen,),
        "feature_gram": (seen,),
        "matrix_times": (seen, V),
        "matrix_back": (seen, L),
        "sum_of_squares": (seen,),
        "regression": (L, F, C, 1e-3),
        **({"change_in_holes": (seen, L, V)} if missing else {}),
    }
    return Asked(JaxEngine(as_data(X), sf.Prior(n_factors=K)), L, F, by_name)


@cache
def whole(missing: float) -> dict[str, np.ndarray]:
    """The answers where all rows are one part."""
    return asked(missing).answers(1)


@pytest.mark.parametrize("n_devices", [1, 2])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_parts_in_turn_are_the_whole(n_devices, missing, monkeypatch):
    own, expected = asked(missing), whole(missing)
    parts = []
    by_parts = matrix.over_parts

    def noted(of_part, *args, **how):
        def one(Y, *own):
            parts.append(Y.shape[0])
            return of_part(Y, *own)

        return by_parts(one, *args, **how)

    monkeypatch.setattr(matrix, "over_parts", noted)
    monkeypatch.setattr(matrix, "LEAST_ROOM", 5 * N * matrix.BYTES_OF_AN_ENTRY)
    clear = [partial(getattr(matrix, name).clear_cache) for name in (*own.by_name, "rss")]
    for one in clear:
        one()
    try:
        found = own.answers(n_devices)
    finally:
        for one in clear:
            one()
    assert set(found) == set(expected)
    for name, value in found.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-10, atol=1e-10, err_msg=name)
    assert max(parts) <= 5, "no part is larger than there is room for"
    assert len(set(parts)) == 2, "rows that do not go round come in the end"
