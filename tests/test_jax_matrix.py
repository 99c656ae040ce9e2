"""What is asked of the data matrix entry by entry, by parts of its rows in turn."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import sparsefactor as sf
from sparsefactor.data import as_data
from sparsefactor.engine.jax_engine import JaxEngine
from sparsefactor.kernels.jax import matrix
from sparsefactor.kernels.jax.library import x64

G, N, K = 46, 17, 3


@pytest.mark.parametrize("n_devices", [1, 2])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_parts_in_turn_are_the_whole(n_devices, missing, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, G))
    X[rng.random(X.shape) < missing] = np.nan
    engine = JaxEngine(as_data(X), sf.Prior(n_factors=K))
    problem, kind = engine.problem, engine.kind._replace(n_devices=n_devices)
    L, F, V, C = (rng.standard_normal(shape) for shape in ((G, K), (K, N), (N, K), (2, N)))
    left, right = (rng.standard_normal((n, 2)) for n in (G, N))
    seen = matrix.Seen(np.float64(2.0), rng.standard_normal((G, 2)), C, left, right)
    asked = {
        "gram": (seen,),
        "feature_gram": (seen,),
        "matrix_times": (seen, V),
        "matrix_back": (seen, L),
        "sum_of_squares": (seen,),
        "regression": (L, F, C, 1e-3),
        **({"change_in_holes": (seen, L, V)} if missing else {}),
    }

    def answers():
        with x64():
            found = {name: getattr(matrix, name)(problem, *args, kind=kind) for name, args in asked.items()}
            found |= {f"rss {over}": matrix.rss(problem, L, F, kind=kind, over=over) for over in (0, 1)}
            return {name: np.asarray(value) for name, value in found.items()}

    whole = answers()
    parts = []
    by_parts = matrix.over_parts

    def noted(of_part, *args, **how):
        def one(Y, *own):
            parts.append(Y.shape[0])
            return of_part(Y, *own)

        return by_parts(one, *args, **how)

    monkeypatch.setattr(matrix, "over_parts", noted)
    monkeypatch.setattr(matrix, "LEAST_ROOM", 5 * N * matrix.BYTES_OF_AN_ENTRY)
    clear = [partial(getattr(matrix, name).clear_cache) for name in (*asked, "rss")]
    for one in clear:
        one()
    try:
        for name, value in answers().items():
            np.testing.assert_allclose(value, whole[name], rtol=1e-10, atol=1e-10, err_msg=name)
    finally:
        for one in clear:
            one()
    assert max(parts) <= 5, "no part is larger than there is room for"
    assert len(set(parts)) == 2, "rows that do not go round come in the end"
