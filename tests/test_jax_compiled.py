"""What a fit in JAX compiles: few programs, kept on disk for the next process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import sparsefactor as sf
from sparsefactor.kernels.jax.library import jax

SAMPLER = ("gibbs_step", "rotate", "shear")


@pytest.fixture
def compiled():
    """Names of the programs that are compiled, one for each time, in all threads."""
    names = []

    def note(event, seconds, **told):
        if event.endswith("backend_compile_duration"):
            names.append(told["fun_name"].removeprefix("jit_").removeprefix("jit(").removesuffix(")"))

    jax.monitoring.register_event_duration_secs_listener(note)
    yield names
    jax.monitoring.unregister_event_duration_listener(note)


@pytest.mark.slow
def test_a_fit_compiles_each_program_once(compiled):
    """The factor analysis that it starts from has the same shapes as the fit."""
    X = sf.simulate(n_features=50, n_samples=23, inclusion=[0.5, 0.5], snr=5, seed=0).X
    sf.fit_vi(X, n_factors=5, backend="jax", tol=1e-3)
    assert compiled.count("row_step") <= 2
    assert compiled.count("column_step") <= 2
    compiled.clear()
    sf.fit_vi(X, n_factors=5, backend="jax", tol=1e-3, search="thorough", n_trials=2)
    assert {name: compiled.count(name) for name in SAMPLER} == dict.fromkeys(SAMPLER, 1)


FRESH = """
from jax._src import monitoring
told = []
monitoring.register_event_listener(lambda event, **_: told.append(event.split("/")[-1]))
import sparsefactor as sf
X = sf.simulate(n_features=40, n_samples=20, inclusion=[0.5, 0.5], snr=5, seed=0).X
print(sf.fit_vi(X, n_factors=2, n_trials=1, init="varimax", max_iter=20, tol=10.0, backend="jax").elbo)
print(told.count("cache_misses"), told.count("cache_hits"))
"""


@pytest.mark.slow
def test_a_fresh_process_compiles_nothing_that_another_has_compiled(tmp_path):
    paths = {"XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(Path(sf.__file__).parents[1])}
    env = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"} | paths
    runs = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", FRESH], env=env, capture_output=True, text=True, timeout=600, check=True
        )
        elbo, misses, hits = done.stdout.split()
        runs.append((elbo, int(misses), int(hits)))
    assert runs[0][1] > 5
    assert runs[1] == (runs[0][0], 0, runs[0][1] + runs[0][2])
    assert (tmp_path / "sparsefactor" / "jax").is_dir()
