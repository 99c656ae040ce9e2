"""Saving and loading: exact both ways, whole or not at all, and nothing foreign is taken."""

import io
import json
import os
import random
import subprocess
import sys
import time
import tracemalloc
import zipfile
from collections.abc import Callable
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
from sparsefactor.storage.zarr_file import ZarrFile

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


@pytest.mark.parametrize("make", [vi_posterior, mcmc_posterior])
def test_other_tools_read_the_file(tmp_path, make) -> None:
    """zarr and xarray, from the file and from the folder that it unpacks to; ArviZ, the draws."""
    import zarr

    original = make()
    save(original, tmp_path / "r.sf", precision="double")
    with zipfile.ZipFile(tmp_path / "r.sf") as archive:
        archive.extractall(tmp_path / "r.zarr")
    with zarr.storage.ZipStore(tmp_path / "r.sf", mode="r") as store:
        for source in (store, tmp_path / "r.zarr"):
            tree = xr.open_datatree(source, engine="zarr").load()
            moments = tree["variational" if isinstance(original, VIPosterior) else "moments"]
            assert moments["loadings_mean"].dims == ("feature", "factor")
            np.testing.assert_array_equal(moments["loadings_mean"], original.loadings_mean)
            assert moments["feature"].values.tolist() == original.feature_names.tolist()
            if isinstance(original, MCMCPosterior):
                names = ["feature", "observation"]  # as strings of another kind
                stored, draws = (one["posterior"].to_dataset().drop_vars(names) for one in (tree, original.draws))
                xr.testing.assert_equal(stored, draws)
                summary = pytest.importorskip("arviz_stats").summary(tree, var_names=["loading_precision"])
                assert len(summary) == K
        group = zarr.open_group(store, mode="r", use_consolidated=False)
        codecs = group[f"{moments.name}/loadings_mean"].metadata.codecs
    assert type(codecs[-1]).__name__ == "Crc32cCodec"


def test_memory_that_compresses_is_compressed(tmp_path) -> None:
    save(replace(vi_posterior(), trial_agreement=np.zeros((100_000, K))), tmp_path / "r")
    assert (tmp_path / "r").stat().st_size < 30_000


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
    """Of the 9 bytes of each: even where inclusions are independent of the draw before, which chains' are not."""
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
    assert size < 1.1 * inclusion.size


# ---- whole or not at all ------------------------------------------------------------------------------------------


def test_failure_leaves_the_old_file(tmp_path, monkeypatch) -> None:
    path = tmp_path / "r"
    save(vi_posterior(), path)
    before = path.read_bytes()

    def broken(*_args, **_kwargs) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("sparsefactor.storage.zarr_file.pack", broken)
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
    with pytest.raises(TypeError, match="only numbers and strings can be saved; 'variational/feature'"):
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


def contents(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archived(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def rewritten(path: Path, content: bytes, change: Callable[[dict], None], **members: bytes) -> None:
    """Write the file `content` to `path` with the root's metadata changed, and members added."""
    own = contents(content)
    root = json.loads(own["zarr.json"])
    change(root)
    archived(path, own | {"zarr.json": json.dumps(root).encode()} | members)


def nodes(root: dict) -> dict:
    return root["consolidated_metadata"]["metadata"]


def test_file_that_is_not_there(tmp_path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "r")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "is damaged"),
        (b"PK\x03\x04cut", "is damaged"),
        (b"a;b\n1;2\n", "is not a sparsefactor result, or is damaged"),
        (b"\x89HDF\r\n" * 100, "is not a sparsefactor result, or is damaged"),
    ],
)
def test_foreign_file(tmp_path, content, what) -> None:
    (tmp_path / "r").write_bytes(content)
    with pytest.raises(ValueError, match=rf"must be whole; '.*r' {what} or cut short \(File is not a zip file"):
        load(tmp_path / "r")


@pytest.mark.parametrize("root", [None, "not json", "[]", "{}", '{"attributes": {"sparsefactor": {}}}'])
def test_foreign_zip(tmp_path, root) -> None:
    archived(tmp_path / "r", {"x": b"x"} | ({} if root is None else {"zarr.json": root.encode()}))
    with pytest.raises(ValueError, match=r"result must be whole; '.*r' is (not|damaged)"):
        load(tmp_path / "r")


def test_a_zarr_file_of_another_program_is_refused(tmp_path) -> None:
    from sparsefactor.storage.zarr_file import write

    write(tmp_path / "r", {"sparsefactor": {"format": "other", "version": 3}}, {"a": np.arange(3)})
    with pytest.raises(ValueError, match="is not a sparsefactor result"):
        load(tmp_path / "r")


def test_newer_version(tmp_path, saved) -> None:
    rewritten(tmp_path / "r", saved, lambda root: root["attributes"]["sparsefactor"].update(version=99))
    with pytest.raises(ValueError, match=r"has format version 99, this sparsefactor reads 3: upgrade it"):
        load(tmp_path / "r")


def test_rewritten_unchanged_is_accepted(tmp_path, saved) -> None:
    rewritten(tmp_path / "r", saved, lambda root: None)
    assert_same(load(tmp_path / "r").draws, mcmc_posterior().draws)


def test_every_member_that_is_missing_is_named(tmp_path, saved) -> None:
    own = contents(saved)
    for gone in own:
        archived(tmp_path / "r", {name: content for name, content in own.items() if name != gone})
        if gone.endswith("/zarr.json"):  # a copy of what the root has
            assert load(tmp_path / "r").n_chains == 2
            continue
        with pytest.raises(ValueError, match="is not a file of sparsefactor" if gone == "zarr.json" else gone):
            load(tmp_path / "r")


def test_every_damaged_member_is_named(tmp_path, saved) -> None:
    """By the checksum of the archive, and where that is right, by the chunk's own."""
    with zipfile.ZipFile(io.BytesIO(saved)) as archive:
        for info in archive.infolist():
            name = len(info.filename)
            content = bytearray(saved)
            content[info.header_offset + 30 + name + info.compress_size // 2] ^= 1
            (tmp_path / "r").write_bytes(content)
            with pytest.raises(ValueError, match=info.filename if info.filename != "zarr.json" else "is damaged"):
                load(tmp_path / "r")
    own = contents(saved)
    for name, content in own.items():
        if not name.endswith("zarr.json"):
            changed = bytearray(content)
            changed[len(content) // 2] ^= 1
            archived(tmp_path / "r", own | {name: bytes(changed)})
            with pytest.raises(ValueError, match=f"wrong checksum of {name}"):
                load(tmp_path / "r")


def test_unknown_class(tmp_path, saved) -> None:
    rewritten(tmp_path / "r", saved, lambda root: root["attributes"]["sparsefactor"].update({"class": "Other"}))
    with pytest.raises(ValueError, match="is damaged"):
        load(tmp_path / "r")


def test_a_field_that_is_not_there_has_its_default(tmp_path, saved) -> None:
    """Files of before a field was added."""

    def change(root) -> None:
        del root["attributes"]["sparsefactor"]["settings"]["record"]
        del root["attributes"]["sparsefactor"]["settings"]["moments/labels/scale"]

    with pytest.raises(KeyError):
        rewritten(tmp_path / "r", saved, change)

    def other(root) -> None:
        del root["attributes"]["sparsefactor"]["settings"]["record"]
        del root["attributes"]["sparsefactor"]["settings"]["labels/scale"]

    rewritten(tmp_path / "r", saved, other)
    assert load(tmp_path / "r").record == {}
    assert load(tmp_path / "r").labels.scale.tolist() == [1.0] * G


LOADINGS = "moments/loadings_mean"


def changed_node(**changes) -> Callable[[dict], None]:
    return lambda root: nodes(root)[LOADINGS].update(changes)


HOSTILE = {
    "object type": changed_node(data_type="object"),
    "bytes type": changed_node(data_type={"name": "null_terminated_bytes", "configuration": {"length_bytes": 10**9}}),
    "huge shape": changed_node(shape=[10**12, K]),
    "huge chunk": changed_node(chunk_grid={"name": "regular", "configuration": {"chunk_shape": [10**12, K]}}),
    "no chunk": changed_node(chunk_grid={"name": "regular", "configuration": {"chunk_shape": [0, K]}}),
    "negative": changed_node(shape=[-1, K]),
    "true": changed_node(shape=[True, K]),
    "other grid": changed_node(chunk_grid={"name": "rectilinear", "configuration": {"chunk_shape": [G, K]}}),
    "pickle": changed_node(codecs=[{"name": "numcodecs.pickle", "configuration": {}}]),
    "other codec": changed_node(codecs=[{"name": "bytes", "configuration": {"endian": "big"}}, {"name": "crc32c"}]),
    "no checksum": lambda root: nodes(root)[LOADINGS]["codecs"].pop(),
    "gzip": lambda root: nodes(root)[LOADINGS]["codecs"].insert(1, {"name": "gzip", "configuration": {"level": 5}}),
    "sharding": changed_node(codecs=[{"name": "sharding_indexed", "configuration": {}}]),
    "transformer": changed_node(storage_transformers=[{"name": "other"}]),
    "fill": changed_node(fill_value=1),
    "dimensions": changed_node(dimension_names=[None, "factor"]),
    "format": changed_node(zarr_format=2),
    "key encoding": changed_node(chunk_key_encoding={"name": "v2", "configuration": {"separator": "."}}),
    "attributes": changed_node(attributes=[]),
    "group": changed_node(node_type="other"),
    "outside": lambda root: nodes(root).update({"../../etc": nodes(root).pop(LOADINGS)}),
}


@pytest.mark.parametrize("how", HOSTILE)
def test_hostile_metadata_are_refused_before_anything_is_read(tmp_path, saved, how, monkeypatch) -> None:
    rewritten(tmp_path / "r", saved, HOSTILE[how])
    monkeypatch.setattr(ZarrFile, "read", None)
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"result must be whole.*is damaged"):
        load(tmp_path / "r")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a//x", "a\\x", "./x", "a/./x"])
def test_names_that_lead_elsewhere_are_refused(tmp_path, saved, name) -> None:
    archived(tmp_path / "r", contents(saved) | {name: b"x"})
    with pytest.raises(ValueError, match="a member is called"):
        load(tmp_path / "r")


def test_two_members_of_one_name_are_refused(tmp_path, saved) -> None:
    (tmp_path / "r").write_bytes(saved)
    with (
        pytest.warns(UserWarning, match="Duplicate name"),
        zipfile.ZipFile(tmp_path / "r", "a") as archive,
    ):
        archive.writestr("zarr.json", b"{}")
    with pytest.raises(ValueError, match=r"a member is called 'zarr.json'"):
        load(tmp_path / "r")


@settings(deadline=None)
@given(fraction=st.floats(0, 1, exclude_max=True))
def test_cut_file(tmp_path_factory, saved, fraction) -> None:
    path = tmp_path_factory.mktemp("cut") / "r"
    path.write_bytes(saved[: int(fraction * len(saved))])
    with pytest.raises(ValueError, match="is damaged or cut short"):
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


def sealed(content: bytes) -> bytes:
    import google_crc32c

    return content + google_crc32c.value(content).to_bytes(4, "little")


def bomb(size: int, says: int) -> bytes:
    """A chunk, with the right checksum, that unpacks to one size and says that it is another."""
    from numcodecs import blosc

    content = bytearray(blosc.compress(bytes(size), b"zstd", 5, blosc.SHUFFLE, typesize=8))
    content[4:8] = says.to_bytes(4, "little")
    return sealed(bytes(content))


@pytest.mark.parametrize("size", [G * K * 8 - 8, G * K * 8 + 8, 1_500_000_000])
def test_a_chunk_of_another_size_than_its_array_is_refused(tmp_path, saved, size) -> None:
    chunk = f"{LOADINGS}/c/0/0"
    real = 100_000_000 if size > 10**6 else size
    archived(tmp_path / "r", contents(saved) | {chunk: bomb(real, size)})
    tracemalloc.start()
    with pytest.raises(ValueError, match=f"{chunk} does not unpack to {G * K * 8} bytes"):
        load(tmp_path / "r")
    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()
    archived(tmp_path / "r", contents(saved) | {chunk: bomb(real, G * K * 8)})
    with pytest.raises(ValueError, match=f"is damaged .*{chunk}"):
        load(tmp_path / "r")


@pytest.mark.parametrize("count", [0, 2**32 - 1])
def test_strings_of_another_number_than_their_array_are_refused(tmp_path, saved, count) -> None:
    from numcodecs import blosc

    for texts in (b"", b"\xff\xff\xff\xff" * G):
        packed = blosc.compress(count.to_bytes(4, "little") + texts, b"zstd", 5, blosc.BITSHUFFLE, typesize=1)
        archived(tmp_path / "r", contents(saved) | {"moments/feature/c/0": sealed(packed)})
        with pytest.raises(ValueError, match=r"does not have 5 strings|is cut short"):
            load(tmp_path / "r")


@pytest.mark.parametrize("kind", ["zeros", "root", "nested"])
def test_a_file_that_would_fill_memory_is_refused(tmp_path, saved, kind) -> None:
    """A few MB or bytes that unpack to hundreds of MB."""
    if kind == "zeros":
        posterior = replace(vi_posterior(), trial_agreement=np.broadcast_to(0.0, (300_000_000 // 24, K)))
        save(posterior, tmp_path / "r")
    else:
        text = b"[" * 1_000_000 if kind == "nested" else b" " * 20_000_000
        archived(tmp_path / "r", {"zarr.json": text}, zipfile.ZIP_DEFLATED)
    assert (tmp_path / "r").stat().st_size < 4_000_000
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"may unpack to 256000000|is damaged|is not a file"):
        load(tmp_path / "r")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000_000


@pytest.mark.slow
def test_a_thousand_hostile_chunks_are_refused_or_read(tmp_path, saved) -> None:
    """What a chunk says is wrong, but its checksum is right: the decoder takes no harm."""
    script = """
import sys, zipfile, io
import numpy as np
from tests.test_storage import archived, contents, load, sealed
from pathlib import Path
own, rng = contents(Path(sys.argv[1]).read_bytes()), np.random.default_rng(0)
chunks = [name for name in own if not name.endswith("zarr.json")]
refused = 0
for trial in range(1000):
    name = chunks[rng.integers(len(chunks))]
    changed = bytearray(own[name][:-4])
    for at in rng.integers(len(changed), size=3):
        changed[at] = rng.integers(256)
    archived(Path(sys.argv[2]), own | {name: sealed(bytes(changed))})
    try:
        load(sys.argv[2])
    except ValueError as problem:
        assert "sparsefactor" in str(problem)
        refused += 1
print(refused)
"""
    (tmp_path / "r").write_bytes(saved)
    arguments = [sys.executable, "-c", script, str(tmp_path / "r"), str(tmp_path / "d")]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=Path.cwd())
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 300


def test_a_reader_may_allow_more_or_less(tmp_path, saved) -> None:
    (tmp_path / "r").write_bytes(saved)
    with pytest.raises(ValueError, match=r"may unpack to 1000 bytes; .* says it has (\d+); .* max_bytes=\1"):
        load(tmp_path / "r", max_bytes=1000)
    assert_same(load(tmp_path / "r", max_bytes=10**9).draws, mcmc_posterior().draws)


@pytest.mark.parametrize("name", ["loadings_sd", "activations_mean", "noise_precision_mean", "permutations", "signs"])
def test_arrays_that_do_not_belong_together_are_refused(tmp_path, name) -> None:
    save(replace(mcmc_posterior(), **{name: np.zeros((7, 7), dtype=np.int8)}), tmp_path / "r")
    with pytest.raises(ValueError, match=rf"is damaged \(({name}|permutations).*save it again"):
        load(tmp_path / "r")


# ---- files of earlier versions ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def earlier(tmp_path_factory) -> Path:
    """A result of each kind, a run of 2 chains of 130 draws, and a fit, as format 2 had them."""
    folder = tmp_path_factory.mktemp("earlier")
    with zipfile.ZipFile(Path(__file__).parent / "format_2.zip") as archive:
        archive.extractall(folder)
    return folder


def test_results_of_format_2_are_read(earlier, tmp_path) -> None:
    vi, mc = load(earlier / "vi.sf"), load(earlier / "draws.sf")
    assert vi.converged
    assert vi.prior.group_names.tolist() == ["a", "b"]
    assert vi.loading_precision_mean.shape == (2, 2)
    np.testing.assert_allclose(vi.parameters["eta"], vi.inclusion_prob)
    loadings = mc.draws["posterior"]["loadings"].values
    assert loadings.shape == (2, 130, 12, 2)
    np.testing.assert_allclose(loadings.mean((0, 1)), mc.loadings_mean, rtol=1e-6)
    np.testing.assert_array_equal(loadings == 0, mc.draws["posterior"]["inclusion"].values == 0)
    assert 0.5 < mc.variance_explained() < 1
    for name, posterior in (("vi", vi), ("mc", mc)):
        save(posterior, tmp_path / name, precision="double")
        assert load(tmp_path / name).record == posterior.record
    assert_same(load(tmp_path / "mc").draws, mc.draws)


def test_runs_and_fits_of_format_2_are_read_and_not_resumed(earlier) -> None:
    run, saved = load(earlier / "run"), load(earlier / "draws.sf")
    assert_same(run.draws, saved.draws)
    assert load(earlier / "fit").elbo == load(earlier / "vi.sf").elbo
    X = np.zeros((10, 12))
    for call in (sf.sample, sf.fit_vi):
        path = earlier / ("run" if call is sf.sample else "fit")
        with pytest.raises(ValueError, match=r"has version \d; sf.load\(path\) opens it if it is done"):
            call(X + np.eye(10, 12), n_factors=1, path=path)


def test_damaged_files_of_format_2_are_named(earlier, tmp_path) -> None:
    for name in ("draws.sf", "run/sampler/chain-1/000001.draws"):
        content = bytearray((earlier / name).read_bytes())
        for at in range(40, len(content), len(content) // 20):
            changed = bytearray(content)
            changed[at] ^= 1
            (earlier / name).write_bytes(changed)
            try:
                load(earlier / name.split("/")[0])
            except ValueError as problem:
                assert "is damaged" in str(problem)  # noqa: PT017
        (earlier / name).write_bytes(content)


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


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, zipfile.ZIP_DEFLATED])
def test_other_compression_is_refused(tmp_path, saved, method) -> None:
    archived(tmp_path / "r", contents(saved), method)
    with pytest.raises(ValueError, match="has another compression or size than it should"):
        load(tmp_path / "r")
