"""The fill-in test: held-out entries, baselines, files, and its folder of results."""

import gzip
from dataclasses import replace

import numpy as np
import pytest
from study import gtex, matrix, report_gtex
from study.matrix import read_matrix, simulate_matrix
from study.units import Cache
from tests.helpers.rds import as_rds

import sparsefactor as sf


def test_fill_in_study(tmp_path) -> None:
    small = simulate_matrix((60, 12), n_factors=3)
    tiny = {"n_trials": 2, "max_iter": 10, "n_warmup": 2, "n_sweeps": 6, "n_factors": 3}
    results = gtex.run(replace(gtex.LEVELS["quick"], **tiny), small, Cache(tmp_path / "cache"), 1)
    page = report_gtex.write(results, tmp_path, "the command", 1.0)
    assert "Not GTEx" in page.read_text()
    rows = (tmp_path / "fill_in.csv").read_text().splitlines()
    assert len(rows) == 1 + 2 + 6 * 3 + 3
    means = [row for row in rows if row.startswith('"VI, mean of all restarts",')]
    assert len(means) == 6
    assert all(row.split(",")[-2] == "2" for row in means)  # of two restarts
    assert (tmp_path / "figures" / "factors.svg").exists()
    held = np.load(tmp_path / "held_out.npy")
    np.testing.assert_array_equal(held, np.random.default_rng(0).choice(720, 72, replace=False))


def test_held_out_entries_do_not_reach_the_fit(tmp_path) -> None:
    values = np.arange(24.0).reshape(6, 4)
    np.savez(tmp_path / "d.npz", values=values)
    X, measure = gtex._masked({"seed": 0}, str(tmp_path / "d.npz"))
    hidden = np.isnan(X)
    assert hidden.sum() == len(measure.values) == 2
    np.testing.assert_array_equal(np.sort(values.T[hidden]), np.sort(measure.values))


def test_soft_svd_beats_the_mean_on_low_rank_data_only() -> None:
    rng = np.random.default_rng(0)
    low = rng.standard_normal((200, 3)) @ rng.standard_normal((3, 20)) + 0.3 * rng.standard_normal((200, 20))
    held = matrix.held_out(low.shape, 0)
    found = matrix.baselines(low, held, 0)
    assert found["soft-thresholded SVD"] < 0.4
    assert found["feature mean"] > 0.9
    assert found["zero"] == 1.0
    noise = matrix.baselines(rng.standard_normal((200, 20)), held, 0)
    assert noise["soft-thresholded SVD"] > 0.95


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet", ".rds"])
def test_matrices_are_read(tmp_path, suffix) -> None:
    import pandas as pd

    frame = pd.DataFrame([[1.5, 2.0], [3.0, -4.0], [0.0, 1.0]], index=["r1", "r2", "r3"], columns=["Liver", "Lung"])
    path = tmp_path / f"z{suffix}"
    if suffix == ".parquet":
        frame.to_parquet(path)
    elif suffix == ".rds":
        path.write_bytes(gzip.compress(as_rds(frame.to_numpy(), list(frame.index), list(frame.columns))))
    else:
        frame.to_csv(path)
    found = read_matrix(path, transpose=True)
    np.testing.assert_array_equal(found.values, frame.to_numpy())
    assert found.sample_names == ["Liver", "Lung"]
    assert found.feature_names == ["r1", "r2", "r3"]
    as_fit_reads_it = read_matrix(path)
    np.testing.assert_array_equal(as_fit_reads_it.values, frame.to_numpy().T)
    assert as_fit_reads_it.sample_names == ["r1", "r2", "r3"]
    for choices in ({}, {"transpose": True}):
        own, study = sf.read_table(path, **choices), read_matrix(path, **choices)
        assert (list(own.index), list(own.columns)) == (study.sample_names, study.feature_names)
        np.testing.assert_array_equal(own.to_numpy().T, study.values)


def test_matrices_that_cannot_be_used_are_refused(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read_matrix(tmp_path / "none.csv")
    (tmp_path / "a.txt").touch()
    with pytest.raises(ValueError, match="is empty"):
        read_matrix(tmp_path / "a.txt")
    (tmp_path / "a.csv").write_text("n,a,b\nx,1,\ny,2,3\n")
    with pytest.raises(ValueError, match="must be complete"):
        read_matrix(tmp_path / "a.csv")
