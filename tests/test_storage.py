"""Saving and loading: exact both ways, whole or not at all, and nothing foreign is taken."""

import json
import os
import random
import subprocess
import sys
import time
import tracemalloc
import zipfile
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import sparsefactor as sf
from sparsefactor.model import Beta, Prior
from sparsefactor.posterior import DIMS, NOISE_DIMS, Labels, MCMCPosterior, Status, VIPosterior
from sparsefactor.storage import load, save

G, N, K = 5, 4, 3
NOISE_SHAPES = {"feature": (G,), "shared": (), "sample": (N,)}
NAMES = {
    "numbers": Labels(feature_names=np.arange(G), sample_names=np.arange(N), offset=np.zeros(G)),
    "words": Labels(
        feature_names=np.array([f"gene {i} é" for i in range(G)]),
        sample_names=np.array(list("abcd")),
        offset=np.linspace(-1, 1, G),
    ),
}
PRIORS = {
    "scalar": Prior(n_factors=K, inclusion=0.1),
    "vector": Prior(inclusion=[0.1, 0.1, 0.9], noise="shared", noise_shape=0.5),
    "matrix": Prior(inclusion=np.random.default_rng(0).uniform(0.1, 0.9, (G, K)), noise="sample"),
    "beta": Prior(n_factors=K, inclusion=Beta(1.0, 9.0), loading_rate=1 / 3),
}


def moments(rng, prior) -> dict:
    return {
        "prior": prior,
        "loadings_mean": rng.normal(size=(G, K)),
        "loadings_sd": rng.random((G, K)),
        "inclusion_prob": rng.random((G, K)),
        "activations_mean": np.asfortranarray(rng.normal(size=(N, K))),
        "activations_sd": rng.random((N, K)),
        "noise_precision_mean": np.asarray(rng.random(NOISE_SHAPES[prior.noise])),
        "loading_precision_mean": rng.random(K),
        "inclusion_rate_mean": rng.random(K if prior.learns_inclusion else 0),
    }


def vi_posterior(prior=PRIORS["vector"], labels=NAMES["words"], status=Status.CONVERGED) -> VIPosterior:
    rng = np.random.default_rng(1)
    return VIPosterior(
        labels=labels,
        **moments(rng, prior),
        elbo=-1234.5678901234567,
        elbo_terms={"likelihood": -0.1, "loadings": -np.inf, "noise": float(np.float64(1) / 3)},
        elbo_history={"iteration": np.arange(4), "elbo": rng.normal(size=4), "seconds": rng.random(4)},
        trial_records=[
            {"trial": 0, "start": "svd", "elbo": np.float64(1.5), "iterations": np.int64(7), "won": np.True_},
            {"trial": 1, "start": "random", "elbo": np.nan, "iterations": 3, "won": False},
        ],
        stability=np.array([1.0, 0.25, np.nan]),
        status=status,
        parameters={"mu": rng.normal(size=(G, K)), "f_var": rng.random((N, K, K)), "pi_a": np.zeros(0)},
    )


def mcmc_posterior(prior=PRIORS["vector"], labels=NAMES["words"]) -> MCMCPosterior:
    rng = np.random.default_rng(2)
    sizes = {"chain": 2, "draw": 6, "feature": G, "observation": N, "factor": K}
    dims = {**DIMS, "noise_precision": NOISE_DIMS[prior.noise]}
    variables = {
        name: (("chain", "draw", *own), rng.normal(size=[sizes[d] for d in ("chain", "draw", *own)]))
        for name, own in dims.items()
    }
    variables["inclusion"] = (variables["inclusion"][0], variables["inclusion"][1] > 0)
    coords = {
        "chain": np.arange(2),
        "draw": np.arange(0, 12, 2),
        "feature": labels.feature_names,
        "observation": labels.sample_names,
        "factor": np.arange(K),
        "rank": ("factor", np.array([2, 0, 1])),
    }
    posterior = xr.Dataset(variables, coords=coords, attrs={"thin": 2, "note": "β", "seeds": [1, 2]})
    posterior["loadings"].attrs["unit"] = "none"
    stats = xr.Dataset({"lp": (("chain", "draw"), rng.normal(size=(2, 6)))}, coords={"chain": np.arange(2)})
    return MCMCPosterior(
        labels=labels,
        **moments(rng, prior),
        draws=xr.DataTree.from_dict({"posterior": posterior, "sample_stats": stats, "a/b": xr.Dataset()}),
        signal_mean=rng.normal(size=(N, G)),
        permutations=np.tile(np.arange(K), (2, 6, 1)),
        signs=np.ones((2, 6, K), dtype=np.int8),
    )


def assert_same(a, b) -> None:
    """Equal to the bit, whatever the type."""
    if isinstance(a, np.ndarray):
        assert isinstance(b, np.ndarray)
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
        assert a.shape == b.shape
    elif isinstance(a, xr.DataTree):
        xr.testing.assert_identical(a, b)
        for path, node in a.subtree_with_keys:
            for name, variable in node.to_dataset(inherit=False).variables.items():
                assert b[path].to_dataset(inherit=False).variables[name].dtype == variable.dtype
    elif isinstance(a, Prior | Labels):
        for field in fields(a):
            assert_same(getattr(a, field.name), getattr(b, field.name))
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for name in a:
            assert_same(a[name], b[name])
    elif isinstance(a, list):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            assert_same(one, other)
    else:
        assert a == b or (a != a and b != b)


@pytest.mark.parametrize("make", [vi_posterior, mcmc_posterior])
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("labels", NAMES)
def test_round_trip_is_exact(tmp_path, make, prior, labels) -> None:
    original = make(PRIORS[prior], NAMES[labels])
    original.save(tmp_path / "result.sf", precision="double")
    back = load(tmp_path / "result.sf")
    assert type(back) is type(original)
    for field in fields(original):
        assert_same(getattr(original, field.name), getattr(back, field.name))
    np.testing.assert_array_equal(back.reconstruct(), original.reconstruct())


def test_the_comparison_itself_can_fail() -> None:
    one = mcmc_posterior()
    other = one.draws.copy(deep=True)
    other["posterior"]["loadings"].values[0, 0, 0, 0] += 1e-12
    with pytest.raises(AssertionError):
        assert_same(one.draws, other)


@pytest.mark.parametrize("status", list(Status))
def test_every_status_comes_back(tmp_path, status) -> None:
    save(vi_posterior(status=status), str(tmp_path / "r"))
    assert load(str(tmp_path / "r")).status is status


def test_names_kept_as_objects_become_strings(tmp_path) -> None:
    labels = replace(NAMES["words"], feature_names=np.array(list("abcde"), dtype=object))
    save(vi_posterior(labels=labels), tmp_path / "r")
    np.testing.assert_array_equal(load(tmp_path / "r").feature_names, list("abcde"))


def test_what_is_loaded_can_be_saved_again(tmp_path) -> None:
    save(mcmc_posterior(), tmp_path / "one")
    save(load(tmp_path / "one"), tmp_path / "two")
    assert_same(load(tmp_path / "one").draws, load(tmp_path / "two").draws)


def test_file_is_a_compressed_zip_without_pickles(tmp_path) -> None:
    sparse = replace(vi_posterior(), loadings_mean=np.zeros((1000, K)))
    save(sparse, tmp_path / "r")
    with zipfile.ZipFile(tmp_path / "r") as archive:
        assert json.loads(archive.read("meta.json"))["format"] == "sparsefactor posterior"
        for info in archive.infolist():
            assert info.compress_type == zipfile.ZIP_DEFLATED
            if info.filename.endswith(".npy"):
                with archive.open(info) as member:
                    np.lib.format.read_array(member, allow_pickle=False)
        assert archive.getinfo("fields/loadings_mean.npy").compress_size < 1000


def sparse_posterior(sparse: bool = True) -> MCMCPosterior:
    """Draws of which a tenth are included; loadings are zero elsewhere, or not."""
    posterior = mcmc_posterior()
    rng = np.random.default_rng(3)
    inclusion = (rng.random((2, 6, G, K)) < 0.1).astype(np.int8)
    loadings = rng.normal(size=(2, 6, G, K)) * (inclusion if sparse else 1)
    draws = posterior.draws.to_dict()
    dims = ("chain", "draw", *DIMS["loadings"])
    draws["/posterior"] = draws["/posterior"].assign(inclusion=(dims, inclusion), loadings=(dims, loadings))
    return replace(posterior, draws=xr.DataTree.from_dict(draws))


@pytest.mark.parametrize("sparse", [True, False])
def test_sparse_draws_come_back(tmp_path, sparse) -> None:
    original = sparse_posterior(sparse)
    save(original, tmp_path / "r", precision="double")
    assert_same(load(tmp_path / "r").draws, original.draws)


def test_single_precision_rounds_what_fills_the_disk_and_nothing_else(tmp_path) -> None:
    original = sparse_posterior()
    save(original, tmp_path / "r")
    back = load(tmp_path / "r")
    for name, variable in original.draws["posterior"].data_vars.items():
        stored = back.draws["posterior"][name]
        rounded = name in ("loadings", "activations", "noise_precision")
        np.testing.assert_array_equal(stored, variable.astype(np.float32) if rounded else variable)
        assert stored.dtype == variable.dtype
        assert not rounded or not np.array_equal(stored, variable)
    np.testing.assert_array_equal(back.loadings_mean, original.loadings_mean)
    save(back, tmp_path / "again")
    assert_same(load(tmp_path / "again").draws, back.draws)
    with pytest.raises(ValueError, match=r"precision must be one of .*got 'half'"):
        save(original, tmp_path / "r", precision="half")


@pytest.mark.parametrize("value", [1e39, -1e-39, 1e-300, np.inf, np.nan])
def test_values_beyond_single_precision_are_kept(tmp_path, value) -> None:
    original = mcmc_posterior()
    original.draws["posterior"]["noise_precision"].values[1, 2] = value
    save(original, tmp_path / "r")
    stored = load(tmp_path / "r").draws["posterior"]["noise_precision"].values
    np.testing.assert_array_equal(stored[1, 2], original.draws["posterior"]["noise_precision"].values[1, 2])


def test_sparse_draws_take_a_fraction(tmp_path) -> None:
    """Of what all of them would take: a bit each, and four bytes where one is set."""
    n, rng = (1, 400, 50, 4), np.random.default_rng(0)
    inclusion = (rng.random(n) < 0.1).astype(np.int8)
    data = {"inclusion": inclusion, "loadings": rng.normal(size=n) * inclusion}
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset({k: (tuple("abcd"), v) for k, v in data.items()})})
    tree = xr.DataTree.from_dict(
        {"posterior": tree["posterior"].to_dataset().rename(a="chain", b="draw", c="feature", d="factor")}
    )
    save(replace(mcmc_posterior(), draws=tree), tmp_path / "r")
    save(replace(mcmc_posterior(), draws=xr.DataTree()), tmp_path / "without")
    size = (tmp_path / "r").stat().st_size - (tmp_path / "without").stat().st_size
    assert size < inclusion.size / 8 + 4 * inclusion.sum() + 1500


# ---- whole or not at all ------------------------------------------------------------------------------------------


def test_failure_leaves_the_old_file(tmp_path, monkeypatch) -> None:
    path = tmp_path / "r"
    save(vi_posterior(), path)
    before = path.read_bytes()

    def broken(*_args, **_kwargs) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(np.lib.format, "write_array", broken)
    with pytest.raises(OSError, match="disk full"):
        save(vi_posterior(status=Status.MAX_ITER), path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["r"]


def test_success_replaces_the_old_file(tmp_path) -> None:
    save(vi_posterior(), tmp_path / "r")
    save(vi_posterior(status=Status.MAX_ITER), tmp_path / "r")
    assert load(tmp_path / "r").status is Status.MAX_ITER
    assert [file.name for file in tmp_path.iterdir()] == ["r"]


def test_the_old_file_is_never_written_into(tmp_path) -> None:
    save(vi_posterior(), tmp_path / "r")
    os.link(tmp_path / "r", tmp_path / "other name")
    before = (tmp_path / "other name").read_bytes()
    save(vi_posterior(status=Status.MAX_ITER), tmp_path / "r")
    assert (tmp_path / "other name").read_bytes() == before


def test_saving_refusals(tmp_path) -> None:
    with pytest.raises(TypeError, match="only a posterior can be saved; got a dict"):
        save({}, tmp_path / "r")
    with pytest.raises(FileNotFoundError, match=r"directory of a saved posterior must exist.*nowhere.*create it"):
        save(vi_posterior(), tmp_path / "nowhere" / "r")
    labels = replace(NAMES["words"], feature_names=np.array([1, None, 2, 3, 4], dtype=object))
    with pytest.raises(TypeError, match="only numbers and strings can be saved; 'labels/feature_names'"):
        save(vi_posterior(labels=labels), tmp_path / "r")
    with pytest.raises(TypeError, match="can be saved as attributes; got <object"):
        save(replace(vi_posterior(), trial_records=[{"start": object()}]), tmp_path / "r")
    assert list(tmp_path.iterdir()) == []


# ---- foreign and damaged files ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("saved") / "r"
    save(mcmc_posterior(), path, precision="double")
    return path.read_bytes()


def rewritten(path, content: bytes, *, drop=(), **changes) -> None:
    """Write the archive `content` to path with entries of meta.json changed and members dropped."""
    path.with_suffix(".old").write_bytes(content)
    with zipfile.ZipFile(path.with_suffix(".old")) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            if name == "meta.json":
                new.writestr(name, json.dumps({**json.loads(old.read(name)), **changes}))
            elif name not in drop:
                new.writestr(name, old.read(name))


def test_file_that_is_not_there(tmp_path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "r")


@pytest.mark.parametrize("content", [b"", b"hello", b"\x89HDF\r\n" * 100])
def test_foreign_file(tmp_path, content) -> None:
    (tmp_path / "r").write_bytes(content)
    with pytest.raises(ValueError, match=r"result is a zip file; '.*r' is none, or was cut short; pass a file"):
        load(tmp_path / "r")


@pytest.mark.parametrize("meta", [None, "not json", "[]", '{"format": "other", "version": 1}'])
def test_foreign_zip(tmp_path, meta) -> None:
    with zipfile.ZipFile(tmp_path / "r", "w") as archive:
        archive.writestr("x.npy", "x")
        if meta is not None:
            archive.writestr("meta.json", meta)
    with pytest.raises(ValueError, match="is not a sparsefactor result"):
        load(tmp_path / "r")


def test_newer_version(tmp_path, saved) -> None:
    rewritten(tmp_path / "r", saved, version=99)
    with pytest.raises(ValueError, match=r"up to format version 2; .* has version 99; upgrade sparsefactor"):
        load(tmp_path / "r")


def test_rewritten_unchanged_is_accepted(tmp_path, saved) -> None:
    rewritten(tmp_path / "r", saved)
    assert_same(load(tmp_path / "r").draws, mcmc_posterior().draws)


@pytest.mark.parametrize("member", ["fields/signs.npy", "labels/offset.npy", "prior/inclusion.npy"])
def test_member_gone(tmp_path, saved, member) -> None:
    rewritten(tmp_path / "r", saved, drop=[member])
    with pytest.raises(ValueError, match=r"is damaged.*save it again"):
        load(tmp_path / "r")


def test_unknown_class(tmp_path, saved) -> None:
    rewritten(tmp_path / "r", saved, **{"class": "Other"})
    with pytest.raises(ValueError, match="is damaged"):
        load(tmp_path / "r")


def test_pickled_member_is_not_unpickled(tmp_path, saved) -> None:
    rewritten(tmp_path / "r", saved, drop=["fields/signs.npy"])
    with zipfile.ZipFile(tmp_path / "r", "a") as archive, archive.open("fields/signs.npy", "w") as member:
        np.lib.format.write_array(member, np.array([object], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="Object arrays cannot be loaded"):
        load(tmp_path / "r")


@settings(deadline=None)
@given(fraction=st.floats(0, 1, exclude_max=True))
def test_cut_file(tmp_path_factory, saved, fraction) -> None:
    path = tmp_path_factory.mktemp("cut") / "r"
    path.write_bytes(saved[: int(fraction * len(saved))])
    with pytest.raises(ValueError, match="is none, or was cut short"):
        load(path)


@settings(deadline=None)
@given(data=st.data())
def test_changed_byte_is_noticed_or_harmless(tmp_path_factory, saved, data) -> None:
    at = data.draw(st.integers(0, len(saved) - 1))
    changed = bytearray(saved)
    changed[at] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.mktemp("changed") / "r"
    path.write_bytes(changed)
    try:
        back = load(path)
    except ValueError as problem:
        assert "sparsefactor" in str(problem)  # noqa: PT017
    else:
        assert_same(back.draws, mcmc_posterior().draws)


@pytest.mark.parametrize("kind", ["zeros", "draws", "shape", "meta", "nested"])
def test_a_file_that_would_fill_memory_is_refused(tmp_path, saved, kind) -> None:
    """A few MB or bytes that unpack to gigabytes."""
    big = 300_000_000 if kind == "zeros" else 3_000_000_000
    if kind == "zeros":
        rewritten(tmp_path / "r", saved, drop=["fields/signs.npy"])
        with (
            zipfile.ZipFile(tmp_path / "r", "a", zipfile.ZIP_DEFLATED) as archive,
            archive.open("fields/signs.npy", "w", force_zip64=True) as member,
        ):
            np.lib.format.write_array_header_1_0(member, {"descr": "|i1", "fortran_order": False, "shape": (big,)})
            for _ in range(big // 10_000_000):
                member.write(bytes(10_000_000))
    elif kind == "draws":
        (tmp_path / "o").write_bytes(saved)
        with zipfile.ZipFile(tmp_path / "o") as archive:
            meta = json.loads(archive.read("meta.json"))
        for group in meta["draws"]:
            for stored in group["variables"]:
                if "packed" in stored:
                    stored["shape"][1] = big
        rewritten(tmp_path / "r", saved, draws=meta["draws"])
    elif kind == "shape":
        rewritten(tmp_path / "r", saved, drop=["fields/signs.npy"])
        with zipfile.ZipFile(tmp_path / "r", "a") as archive, archive.open("fields/signs.npy", "w") as member:
            np.lib.format.write_array_header_1_0(member, {"descr": "<f8", "fortran_order": False, "shape": (big, 9)})
    else:
        text = "[" * 1_000_000 if kind == "nested" else " " * 20_000_000
        with zipfile.ZipFile(tmp_path / "r", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("meta.json", text)
    assert (tmp_path / "r").stat().st_size < 4_000_000
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"may unpack to 256000000|says it has|is damaged|does not say so"):
        load(tmp_path / "r")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000_000


def test_a_reader_may_allow_more_or_less(tmp_path, saved) -> None:
    (tmp_path / "r").write_bytes(saved)
    with pytest.raises(ValueError, match=r"may unpack to 1000 bytes; .* says it has (\d+); .* max_bytes=\1"):
        load(tmp_path / "r", max_bytes=1000)
    assert_same(load(tmp_path / "r", max_bytes=10**9).draws, mcmc_posterior().draws)


@pytest.mark.parametrize("member", ["loadings_sd", "activations_mean", "noise_precision_mean", "permutations", "signs"])
def test_arrays_that_do_not_belong_together_are_refused(tmp_path, saved, member) -> None:
    rewritten(tmp_path / "r", saved, drop=[f"fields/{member}.npy"])
    with zipfile.ZipFile(tmp_path / "r", "a") as archive, archive.open(f"fields/{member}.npy", "w") as file:
        np.lib.format.write_array(file, np.zeros((7, 7), dtype=np.int8))
    with pytest.raises(ValueError, match=rf"is damaged \(({member}|permutations).*save it again"):
        load(tmp_path / "r")


def test_a_file_of_the_first_version_is_read(tmp_path) -> None:
    """Every variable was an array of its own then."""
    save(vi_posterior(), tmp_path / "new")
    with zipfile.ZipFile(tmp_path / "new") as archive:
        meta = json.loads(archive.read("meta.json"))
    assert meta["version"] == 2
    assert meta.pop("sparsefactor") == sf.__version__
    rewritten(tmp_path / "old", (tmp_path / "new").read_bytes(), version=1)
    assert load(tmp_path / "old").elbo == vi_posterior().elbo


@pytest.mark.slow
def test_two_thousand_damaged_files(tmp_path) -> None:
    """Flips, cuts, zeroed and swapped stretches: the error is ours and short, or what was read is what was written."""
    rng = np.random.default_rng(0)
    for make in (vi_posterior, sparse_posterior):
        whole = make()
        save(whole, tmp_path / "r", precision="double")
        content = np.frombuffer((tmp_path / "r").read_bytes(), np.uint8)
        for trial in range(1000):
            changed = content.copy()
            at, length = int(rng.integers(len(content))), int(rng.integers(1, 64))
            if trial % 4 == 0:
                changed[at] ^= 1 << rng.integers(8)
            elif trial % 4 == 1:
                changed = changed[:at]
            elif trial % 4 == 2:
                changed[at : at + length] = 0
            else:
                other = int(rng.integers(len(content)))
                changed[at : at + length] = np.resize(changed[other : other + length], len(changed[at : at + length]))
            (tmp_path / "d").write_bytes(changed.tobytes())
            try:
                back = load(tmp_path / "d")
            except ValueError as problem:
                assert "sparsefactor" in str(problem)  # noqa: PT017
            else:
                for field in fields(whole):
                    assert_same(getattr(whole, field.name), getattr(back, field.name))


SAVING = """
import sys
from tests.test_storage import save, vi_posterior
p = vi_posterior()
print("ready", flush=True)
while True:
    save(p, sys.argv[1])
"""


@pytest.mark.slow
def test_forty_killed_saves_leave_the_file_and_nothing_else(tmp_path) -> None:
    target, rng, left = tmp_path / "fit.sf", random.Random(0), 0
    save(vi_posterior(), target)
    for _ in range(40):
        child = subprocess.Popen([sys.executable, "-c", SAVING, str(target)], stdout=subprocess.PIPE, cwd=Path.cwd())
        assert child.stdout.readline() == b"ready\n"
        time.sleep(rng.uniform(0.0, 0.05))
        child.kill()
        child.wait()
        child.stdout.close()
        assert load(target).elbo == vi_posterior().elbo
        left += len(os.listdir(tmp_path)) > 1
        assert len(os.listdir(tmp_path)) <= 2  # each removes what the one before it left
    assert left > 5  # or this test would show nothing
    save(vi_posterior(), target)
    assert os.listdir(tmp_path) == ["fit.sf"]


@pytest.mark.parametrize("method", ["ZIP_BZIP2", "ZIP_LZMA"])
def test_other_compression_is_refused(tmp_path, method):
    import zipfile

    path = tmp_path / "p.sf"
    sf.fit_vi(np.random.default_rng(0).standard_normal((12, 6)), n_factors=1).save(path)
    with zipfile.ZipFile(path) as whole:
        content = {info.filename: whole.read(info) for info in whole.infolist()}
    with zipfile.ZipFile(path, "w", getattr(zipfile, method)) as changed:
        for name, data in content.items():
            changed.writestr(name, data)
    with pytest.raises(ValueError, match="damaged"):
        sf.load(path)
