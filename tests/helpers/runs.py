"""A small run on disk, made often: whole, stopped, and compared to the bit."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import sparsefactor as sf
from sparsefactor.mcmc.chain import Chain

PRIOR = sf.Prior(n_factors=2, inclusion=0.5)
# Chunks of 100 draws: chain ends lie within a chunk and beyond one.
RUN = {"n_chains": 3, "n_warmup": 20, "n_draws": 130, "thin": 2, "init": "random", "seed": 5, "progress": False}
SIM = sf.simulate(n_features=12, n_samples=10, inclusion=[0.5, 0.5], snr=10, seed=1)


def loaded(tree: xr.DataTree) -> dict[str, xr.Dataset]:
    return {path: node.to_dataset(inherit=False).load() for path, node in tree.subtree_with_keys}


def assert_same_bits(one: sf.MCMCPosterior, other: sf.MCMCPosterior) -> None:
    a, b = loaded(one.draws), loaded(other.draws)
    assert a.keys() == b.keys()
    for path in a:
        xr.testing.assert_identical(a[path], b[path])
    for field in fields(one):
        mine = getattr(one, field.name)
        if isinstance(mine, np.ndarray):
            np.testing.assert_array_equal(mine, getattr(other, field.name))


def sample(path: Path | None, **changes) -> sf.MCMCPosterior:
    return sf.sample(SIM.X, PRIOR, **{**RUN, "path": path, **changes})


class CrashError(RuntimeError):
    """What a failing machine would do."""


def crash_at(monkeypatch, chain: int, sweep: int, error: type[BaseException] = CrashError) -> None:
    """Let this chain fail before it makes this sweep."""
    advance = Chain.advance

    def failing(self: Chain) -> None:
        if (self.number, self.sweep) == (chain, sweep):
            raise error
        advance(self)

    monkeypatch.setattr(Chain, "advance", failing)


def stopped(path: Path, monkeypatch, chain: int = 1, sweep: int = 100, **changes) -> Path:
    with monkeypatch.context() as patch:
        crash_at(patch, chain, sweep)
        with pytest.raises(CrashError):
            sample(path, **{"checkpoint_seconds": 0.005, "n_jobs": 2, **changes})
    return path


def chunk_file(path: Path, chain: int, chunk: int) -> Path:
    return path / "sampler" / f"chain-{chain}" / f"{chunk:06d}.zarr.zip"


def temporary_names(monkeypatch, folder: Path, call: Callable[[], object]) -> set[str]:
    """Where in the folder `call` writes its temporary files."""
    replace, names = os.replace, set()

    def listen(source, target) -> None:
        names.add(os.path.relpath(source, folder))
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", listen)
        call()
    return names
