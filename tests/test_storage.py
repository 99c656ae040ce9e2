"""Saving and loading: exact both ways, whole or not at all, and nothing foreign is taken."""

import json
import os
import zipfile
from dataclasses import fields, replace

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

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
    original.save(tmp_path / "result.sf")
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
    save(mcmc_posterior(), path)
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
    with pytest.raises(ValueError, match=r"up to format version 1; .* has version 99; upgrade sparsefactor"):
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
