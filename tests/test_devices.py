"""Which engine is chosen, what is refused before the work, and rows over several devices."""

from __future__ import annotations

import importlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests.agreement.cases import make_case

import sparsefactor as sf
from sparsefactor.engine import build_engine, devices
from sparsefactor.engine.cpu import CpuEngine
from sparsefactor.engine.jax_engine import JaxEngine
from sparsefactor.engine.jax_streamed import StreamedJaxEngine
from sparsefactor.engine.small_gibbs import SmallGibbs
from sparsefactor.kernels.jax.library import jax

CASE = make_case("plain", "feature")
NOBODY = SimpleNamespace(memory_stats=lambda: None, device_kind="a device")


def test_a_gpu_that_is_not_there_is_refused():
    if devices.gpu() is not None:
        pytest.skip("there is a GPU")
    with pytest.raises(ValueError, match=r'backend="gpu" needs a GPU .*sees \'cpu\' alone; .*pass backend="cpu"'):
        build_engine(CASE.data, CASE.prior, "gpu")
    assert isinstance(build_engine(CASE.data, CASE.prior, "jax"), JaxEngine)


def test_without_jax_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.delitem(sys.modules, "sparsefactor.kernels.jax.library")
    with pytest.raises(ImportError, match=r'backend "jax" needs JAX, .*pip install "sparsefactor\[gpu\]"'):
        importlib.import_module("sparsefactor.kernels.jax.library")
    assert devices.gpu() is None


def test_a_large_job_goes_to_a_gpu_by_itself_where_there_is_one(monkeypatch):
    monkeypatch.setattr(devices, "gpu", lambda: NOBODY)
    chosen = [
        devices.resolved(backend, CASE.data, CASE.prior, single)
        for backend, single in (("auto", True), ("cpu", True), ("jax", False), ("gpu", False))
    ]
    assert chosen == ["cpu", "cpu", "jax", "jax"]
    monkeypatch.setattr(devices, "WORTH_A_GPU", 150 * 20 * 5)
    assert devices.resolved("auto", CASE.data, CASE.prior, True) == "jax"
    assert devices.resolved("auto", CASE.data, CASE.prior, False) == "cpu", "double precision was asked for"
    monkeypatch.setattr(devices, "room_of", lambda device: 1e3)
    assert devices.resolved("auto", CASE.data, CASE.prior, True) == "cpu", "there is no room"
    monkeypatch.setattr(devices, "gpu", lambda: None)
    assert devices.resolved("auto", CASE.data, CASE.prior, True) == "cpu"


def test_on_a_gpu_data_are_of_single_precision_unless_one_says(monkeypatch):
    monkeypatch.setattr("sparsefactor.engine.gpu", lambda: NOBODY)
    assert build_engine(CASE.data, CASE.prior, "jax", any_precision=True).problem.Y.dtype == np.float32
    assert build_engine(CASE.data, CASE.prior, "jax").problem.Y.dtype == np.float64


def test_too_little_memory_is_told_before_the_work(monkeypatch):
    needed = devices.bytes_needed(CASE.data, CASE.prior, 8)
    monkeypatch.setattr(devices, "room_of", lambda device: 0.5 * needed)
    with pytest.raises(
        MemoryError, match=r'150 x 20 entries .* about \d+ features would fit; pass .* or backend="cpu"'
    ):
        build_engine(CASE.data, CASE.prior, "jax")
    assert isinstance(build_engine(CASE.data, CASE.prior, "auto"), CpuEngine)


def test_data_without_room_are_streamed_and_not_rounded_unless_one_says(monkeypatch):
    half, single = (devices.bytes_needed(CASE.data, CASE.prior, size) for size in (2, 4))
    monkeypatch.setattr("sparsefactor.engine.gpu", lambda: NOBODY)
    monkeypatch.setattr(devices, "room_of", lambda device: single - 1)
    monkeypatch.setattr(devices, "LEAST_ROWS", 10)
    engine = build_engine(CASE.data, CASE.prior, "jax", any_precision=True)
    assert isinstance(engine, StreamedJaxEngine)
    assert (engine.problem.Y.dtype, engine.block) == (np.float32, 22)
    assert devices.resolved("auto", CASE.data, CASE.prior, True) == "cpu"
    monkeypatch.setattr(devices, "room_of", lambda device: half)
    engine = build_engine(CASE.data, CASE.prior, "jax", half=True)
    assert engine.problem.Y.dtype == np.float16
    squares = np.sum(CASE.data.Y.astype(np.float16).astype(np.float64) ** 2, axis=1)
    np.testing.assert_allclose(engine.problem.row_ss, squares, rtol=1e-12)


def test_memory_that_ends_in_the_middle_loses_no_fit(monkeypatch):
    """As XLA says it, after some iterations; before the first there is nothing to return."""
    from sparsefactor.engine import jax_shortcut

    step, left = jax_shortcut.row_step, [30]

    def out_of_memory(*args, **kw):
        left[0] -= 1
        if left[0] < 0:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes.")
        return step(*args, **kw)

    monkeypatch.setattr(jax_shortcut, "row_step", out_of_memory)
    X = sf.simulate(n_features=60, n_samples=30, inclusion=[0.3, 0.3, 0.8], snr=5, seed=0).X
    with pytest.warns(sf.ConvergenceWarning) as told:
        p = sf.fit_vi(X, n_factors=3, n_trials=4, init="varimax", backend="jax")
    assert any("it is full (RESOURCE_EXHAUSTED: Out of memory" in str(one.message) for one in told)
    assert p.status is sf.Status.INTERRUPTED
    assert np.isfinite(p.elbo)
    with pytest.raises(MemoryError, match="pass fewer features or factors"):
        sf.fit_vi(X, n_factors=3, n_trials=4, init="varimax", backend="jax")


@pytest.mark.parametrize("sweeps", [8, 2])
def test_memory_that_ends_in_the_middle_loses_no_draws(monkeypatch, sweeps):
    """After four draws of the two chains together; and before the first."""
    draw, left = SmallGibbs.draw, [2 * sweeps]

    def out_of_memory(*args):
        left[0] -= 1
        if left[0] < 0:
            raise MemoryError("data and states must fit the memory of the device; it is full")
        return draw(*args)

    monkeypatch.setattr(SmallGibbs, "draw", out_of_memory)
    options = {"n_factors": 3, "n_chains": 2, "n_warmup": 4, "n_draws": 50, "init": "varimax", "n_jobs": 1}
    X = CASE.data.Y.T
    if sweeps == 2:
        with pytest.raises(MemoryError, match="it is full"):
            sf.sample(X, **options)
        return
    with pytest.warns(sf.SamplingWarning) as told:
        mc = sf.sample(X, **options)
    assert any("draws so far are returned: data and states must fit" in str(one.message) for one in told)
    assert mc.draws["posterior"].sizes["draw"] == 12, "of the first chain, which had all of the sweeps"
    assert mc.record["ended"] == "stopped since memory was full, with 12 draws of 1 chains"


def test_the_estimate_is_mostly_the_matrix():
    big = SimpleNamespace(n_features=20_000, n_samples=100_000, is_complete=True)
    needed = devices.bytes_needed(big, SimpleNamespace(K=50, n_modules=1), 4)
    assert 8e9 < needed < 16e9


def test_what_is_compiled_is_kept_where_the_user_wants_it(monkeypatch, tmp_path):
    before = jax.config.jax_compilation_cache_dir
    try:
        jax.config.update("jax_compilation_cache_dir", None)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        devices.keep_compiled()
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / "sparsefactor" / "jax")
        jax.config.update("jax_compilation_cache_dir", str(tmp_path / "own"))
        devices.keep_compiled()
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / "own")
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


SHARDED = """
import sys
import numpy as np
import sparsefactor as sf
from sparsefactor.data import as_data
from sparsefactor.engine import build_engine
from sparsefactor.gibbs.moves import moves_for
from sparsefactor.gibbs.sweep import Gibbs
from sparsefactor.kernels.jax.library import jax
from sparsefactor.vi.cavi import CAVI
from sparsefactor.vi.modules import sorted_by, under_modules

structure, moves, (G, N, K) = sys.argv[1], "moves" in sys.argv, (58, 20, 3)
assert len(jax.devices()) == 4
X = sf.simulate(n_features=G, n_samples=N, inclusion=[0.3, 0.3, 0.8], snr=5, seed=0).X
if structure == "missing":
    X = np.where(np.random.default_rng(1).random(X.shape) < 0.2, np.nan, X)
own = {"groups": {"groups": np.arange(G) % 3}, "by row": {"inclusion": np.linspace(0.1, 0.9, G * K).reshape(G, K)}}
prior = sf.Prior(**({"n_factors": K} | own.get(structure, {})))
data = as_data(X, center=True)
data = data.with_design(None, True) if structure == "missing" else data


def looked_at(engine):
    rng, found = np.random.default_rng(0), []
    L, F = rng.standard_normal((G, K)), rng.standard_normal((K, N))
    with engine.scope():
        matrix = engine.start_matrix()
        start = matrix.times(rng.standard_normal((N, 2)))
        found += [matrix.scale, matrix.gram(), matrix.back(start), engine.start_products(start)]
        found += engine.start_bend(engine.start_turn(start, np.eye(2)), np.ones((2, 2)), "tanh")
        cavi = CAVI(data, prior, engine, joint=True)
        state = cavi.start(L, F)
        for _ in range(3):
            state = cavi.sweep(state, rescale=True)
        if structure == "modules":
            more = under_modules(cavi, 3)
            state = more.sweep(sorted_by(more, state, more.engine.vi_sortings(state.rows, 3, rng)[0]))
            found += [state.sums.members, state.sums.active_in]
        found += [*state.terms, *engine.vi_fetch(state.rows)[:4], engine.vi_content(state.rows)]
        if structure != "modules":
            found += [engine.vi_likelihood(state.rows, F), engine.vi_column_rss(state.rows, F)]
            shears = engine.vi_shears(state.rows, cavi.message(state.columns, np.ones(K)))
            found += [shears.shared, shears.profile(0, 1, np.linspace(-1, 1, 5))]
        gibbs = Gibbs(data, prior, engine, moves_for(engine) if moves else ())
        draw = gibbs.start(L, F)
        for sweep in range(3):
            draw, info = gibbs.sweep(draw, (1, 2), 2 * sweep)
            found += [info.log_joint]
        rows = engine.gibbs_return(engine.gibbs_fetch(draw.rows))
        tally = engine.gibbs_tally_add(engine.gibbs_tally(), rows, draw.scale, draw.F)
        found += [*engine.gibbs_fetch(rows)[:3], engine.gibbs_tally_fetch(tally), *engine.gibbs_counts(rows)]
    return found, state


(expected, _), (found, state) = (looked_at(build_engine(data, prior, name)) for name in ("reference", "jax"))
assert len(state.rows.mu.sharding.device_set) == 4
assert state.rows.mu.shape[0] == 60
for one, other in zip(found, expected, strict=True):
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
"""


CHAINS = """
import numpy as np
import sparsefactor as sf

X = sf.simulate(n_features=58, n_samples=30, inclusion=[0.3, 0.3, 0.8], snr=5, seed=0).X
options = {"n_factors": 3, "n_chains": 2, "n_warmup": 3, "n_draws": 4, "init": "varimax", "progress": False}
runs = [sf.sample(X, backend=backend, **options).draws["posterior"]["loadings"] for backend in ("cpu", "jax")]
np.testing.assert_allclose(*runs, rtol=1e-6, atol=1e-8)
"""


STRUCTURES = ("plain", "missing", "groups", "by row", "modules")
SHARED = [pytest.param(SHARDED, ["plain"], id="fit")]
SHARED += [pytest.param(SHARDED, [one, "moves"], marks=pytest.mark.slow, id=f"{one}, moves") for one in STRUCTURES]
SHARED += [pytest.param(CHAINS, [], marks=pytest.mark.slow, id="chains")]


@pytest.mark.parametrize(("script", "args"), SHARED)
def test_rows_are_dealt_out_to_several_devices(script, args):
    """58 features over 4 devices: two more are made up. Two chains at once would wait for each other's devices."""
    root = Path(__file__).resolve().parents[1]
    flags = {"PYTHONWARNINGS": "ignore"} | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "JAX_PLATFORMS": "cpu",
    }
    paths = {"PYTHONPATH": os.pathsep.join([str(root), str(Path(sf.__file__).parents[1])])}
    done = subprocess.run(
        [sys.executable, "-c", script, *args],
        cwd=root,
        env=os.environ | flags | paths,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr


BOTH = """
import sys
import jax
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
assert (len(jax.devices()), jax.local_device_count()) == (4, 2)
import numpy as np
import sparsefactor as sf

sim = sf.simulate(n_features=58, n_samples=30, inclusion=[0.3, 0.3, 0.8], snr=5, seed=0)  # 2 more are made up
X = np.where(np.random.default_rng(1).random(sim.X.shape) < 0.05, np.nan, sim.X)
for data in (sim.X, X):
    fits = [sf.fit_vi(data, n_factors=3, n_trials=2, init="varimax", tol=1e-4, backend=b) for b in ("cpu", "jax")]
    assert abs(fits[1].elbo - fits[0].elbo) < 1e-3, [fit.elbo for fit in fits]
    np.testing.assert_allclose(fits[1].loadings_mean, fits[0].loadings_mean, atol=1e-2)
"""


SAMPLED = """
import sys
import jax
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
import numpy as np
import sparsefactor as sf

X = sf.simulate(n_features=58, n_samples=30, inclusion=[0.3, 0.3, 0.8], snr=5, seed=0).X
options = {"n_factors": 3, "n_chains": 2, "n_warmup": 3, "n_draws": 4, "init": "varimax"}
runs = [sf.sample(X, backend=backend, **options).draws["posterior"]["loadings"] for backend in ("cpu", "jax")]
np.testing.assert_allclose(*runs, rtol=1e-6, atol=1e-8)
"""


@pytest.mark.slow
@pytest.mark.parametrize("script", [BOTH, SAMPLED], ids=["fits", "chains with every move"])
def test_two_processes_share_the_rows(script):
    """As on two hosts, by way of the loopback interface."""
    root = Path(__file__).resolve().parents[1]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    flags |= {"JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo", "PYTHONWARNINGS": "ignore"}
    paths = {"PYTHONPATH": os.pathsep.join([str(root), str(Path(sf.__file__).parents[1])])}
    both = [
        subprocess.Popen(
            [sys.executable, "-c", script, address, str(number)],
            cwd=root,
            env=os.environ | flags | paths,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in range(2)
    ]
    told = [one.communicate(timeout=600)[0] for one in both]
    assert [one.returncode for one in both] == [0, 0], "\n".join(told)[-4000:]
