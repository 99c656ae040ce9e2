"""Priors compared by held-out entries, and how many factors there are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sparsefactor as sf
from sparsefactor.choice.comparison import tabulated
from sparsefactor.choice.hidden import UNIT, Hidden, Laid, drawn
from sparsefactor.choice.masks import METHODS, judged

PRIORS = {str(k): sf.Prior(n_factors=k, inclusion=sf.Beta(1, 1)) for k in (1, 2, 4)}
QUICK = {"n_masks": 3, "n_trials": 2, "n_jobs": 1}


def simulated(missing: float = 0.0) -> sf.Simulation:
    return sf.simulate(n_features=60, n_samples=40, inclusion=[0.5, 0.4], snr=4, missing=missing, seed=1)


@pytest.fixture(scope="module")
def comparison() -> sf.Comparison:
    return sf.compare(simulated().X, PRIORS, **QUICK)


def test_the_true_number_of_factors_predicts_best(comparison):
    assert comparison.choice == "2"
    assert comparison.n_factors == 2
    assert comparison.table.loc["1", "loss"] > 10 * comparison.table.loc["1", "loss_se"]
    assert comparison.table.loc["2", "error"] < comparison.table.loc["1", "error"] < comparison.baseline
    assert (comparison.table["found"] <= comparison.table["n_factors"]).all()


def test_the_table_is_made_of_the_runs(comparison):
    own = comparison.runs[comparison.runs.prior == "1"]
    assert list(own["mask"]) == [1, 2, 3]
    line = comparison.table.loc["1"]
    assert line["error"] == pytest.approx(own["error"].mean())
    assert line["log_density_se"] == pytest.approx(own["log_density"].std(ddof=1) / np.sqrt(3))


def held_out(X: np.ndarray, share: float, seed: int = 0) -> tuple[Laid, sf.Simulation, np.ndarray]:
    """X laid out, a mask of it, and which entries that hides."""
    laid, _ = Laid.of(X)
    (mask,) = drawn(laid, 1, share, seed)
    return laid, mask, np.isnan(Hidden.of(laid, mask).whole()) & ~np.isnan(X)


def test_measures_are_those_of_the_entries_held_out():
    X = simulated(0.1).X
    laid, mask, held = held_out(X, 0.1)
    found, end = judged(laid, PRIORS["2"], mask, "vi", {"n_trials": 2, "seed": 0})
    p = sf.fit_vi(np.where(held, np.nan, X), PRIORS["2"], n_trials=2, seed=0)
    assert found["error"] == pytest.approx(sf.fill_in_error(p, X, held), rel=1e-12)
    np.testing.assert_array_equal(end.L, p.loadings_mean)
    density = p.log_density(np.where(held, X, np.nan), of="entries")
    assert found["log_density"] == pytest.approx(density[held].mean())
    assert found["held_out"] == held.sum() == round(0.1 * (~np.isnan(X)).sum())


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("shape", [(12, 9), (7, 3 * UNIT + 1)])
def test_masks_hold_out_what_is_observed_and_leave_two(seed, shape):
    rng = np.random.default_rng(seed)
    observed = rng.random(shape) < 0.8
    X = np.where(observed, rng.standard_normal(shape), np.nan)
    held = held_out(X, 0.3, seed)[2]
    assert held.sum() == round(0.3 * observed.sum())
    left = observed & ~held
    assert (left.sum(axis=0) >= np.minimum(2, observed.sum(axis=0))).all()
    assert (left.sum(axis=1) >= np.minimum(2, observed.sum(axis=1))).all()


def test_masks_hold_out_every_entry_equally_often():
    X = np.random.default_rng(0).standard_normal((10, 2 * UNIT + 5))
    laid, _ = Laid.of(X)
    often = np.mean([np.isnan(Hidden.of(laid, mask).whole()) for mask in drawn(laid, 400, 0.2, 0)], axis=0)
    error = np.sqrt(0.2 * 0.8 / 400)
    assert np.abs(often - 0.2).max() < 5 * error
    assert np.abs(often[:, -5:].mean() - 0.2) < 5 * error / np.sqrt(50)


def runs_of(**density: list[float]) -> pd.DataFrame:
    lines = [
        {"prior": name, "mask": m, "error": 1.0, "log_density": value, "found": 1, "held_out": 1000}
        for name, values in density.items()
        for m, value in enumerate(values)
    ]
    return pd.DataFrame(lines)


def test_the_choice_is_the_simplest_within_one_standard_error():
    priors = {"a": sf.Prior(n_factors=1), "b": sf.Prior(n_factors=2), "c": sf.Prior(n_factors=3)}
    near = tabulated(runs_of(a=[0.0, 0.1, 0.2], b=[0.9, 1.2, 0.9], c=[1.0, 1.0, 1.1]), priors)
    assert list(near["chosen"]) == [False, True, False]
    assert near.loc["b", "loss"] == pytest.approx(0.1 / 3)
    alike = tabulated(runs_of(a=[0.0, 0.1, 0.2], b=[1.0, 1.0, 1.1], c=[1.0005, 1.0005, 1.1005]), priors)
    assert list(alike["chosen"]) == [False, True, False]  # half a nat over a thousand entries
    clear = tabulated(runs_of(a=[0.0, 0.1, 0.2], b=[0.9, 0.91, 0.9], c=[1.0, 1.0, 1.1]), priors)
    assert list(clear["chosen"]) == [False, False, True]


def test_jobs_and_names_change_nothing(comparison):
    X = simulated().X
    frame = pd.DataFrame(X, columns=[f"gene {i}" for i in range(60)])
    again = sf.compare(frame, PRIORS, **{**QUICK, "n_jobs": 3})
    columns = ["prior", "mask", "error", "log_density", "found"]
    pd.testing.assert_frame_equal(again.runs[columns], comparison.runs[columns])


def test_covariates_are_matched_by_name_and_told_apart(tmp_path: Path):
    """In another order they are the same; others are another comparison, however alike they print."""
    rng = np.random.default_rng(0)
    people = [f"person {j}" for j in range(1200)]
    X = pd.DataFrame(rng.standard_normal((1200, 4)), index=people)
    known = pd.DataFrame({"age": rng.standard_normal(1200)}, index=people)
    X += np.outer(known["age"], [2.0, -2.0, 2.0, 2.0])
    settings = {"n_masks": 2, "n_trials": 1, "path": tmp_path}
    priors = {"1": sf.Prior(n_factors=1)}
    one, turned = (sf.compare(X, priors, covariates=c, **settings) for c in (known, known.iloc[::-1]))
    assert one.table["log_density"].iloc[0] == turned.table["log_density"].iloc[0]
    before = len(list(tmp_path.iterdir()))
    other = known.copy()
    other.iloc[600:620] += 3.0  # where a long frame is not printed
    changed = sf.compare(X, priors, covariates=other, **settings)
    assert len(list(tmp_path.iterdir())) == before + 2
    assert changed.table["log_density"].iloc[0] < one.table["log_density"].iloc[0]


def test_seeds_are_as_elsewhere():
    X, priors = simulated().X[:, :10], {"1": PRIORS["1"]}
    settings = {"n_masks": 2, "n_trials": 1}
    drawn = [sf.compare(X, priors, seed=np.random.default_rng(5), **settings).baseline for _ in range(2)]
    assert drawn[0] == drawn[1] != sf.compare(X, priors, seed=None, **settings).baseline
    with pytest.raises(ValueError, match="seed must be a whole number of at least 0, None or a numpy Generator"):
        sf.compare(X, priors, seed="now")


def test_a_comparison_goes_on_where_it_stopped(tmp_path: Path, comparison):
    def stop(done: int, total: int, title: str) -> None:
        if done == 4:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        sf.compare(simulated().X, PRIORS, path=tmp_path, progress=stop, **QUICK)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.glob("*.json")}
    assert 4 <= len(before) < 9
    told = []
    done = sf.compare(simulated().X, PRIORS, path=tmp_path, progress=lambda *line: told.append(line), **QUICK)
    assert len(list(tmp_path.iterdir())) == 9
    assert all(file.stat().st_mtime_ns == at for file, at in before.items())
    assert told[-1][:2] == (9, 9)
    columns = ["prior", "mask", "error", "log_density"]
    pd.testing.assert_frame_equal(done.runs[columns], comparison.runs[columns])
    sf.compare(simulated().X + 1, PRIORS, path=tmp_path, **QUICK)
    assert len(list(tmp_path.iterdir())) == 18  # other data, other results


def test_fits_start_from_one_another_within_a_mask_alone(monkeypatch):
    fits: list[tuple[np.ndarray, sf.Start | None, np.ndarray]] = []

    def watched(X, prior, **options):
        p = sf.fit_vi(X, prior, **options)
        fits.append((np.isnan(X), options["init"][0] if "init" in options else None, p.loadings_mean))
        return p

    monkeypatch.setitem(METHODS, "vi", watched)
    sf.compare(simulated().X, PRIORS, warm_start=True, **QUICK)
    assert len({held.tobytes() for held, _, _ in fits}) == 3  # a mask each
    assert [start is None for _, start, _ in fits] == [True] * 3 + [False] * 6
    for held, start, _ in fits[3:]:
        (origin,) = [
            own
            for seen, _, own in fits
            if own.shape[1] > start.L.shape[1]
            and np.array_equal(own[:, : start.L.shape[1]], start.L)
            and np.array_equal(seen, held)
        ]
        assert origin.shape[1] in (2, 4)
    fits.clear()
    sf.compare(simulated().X, PRIORS, **QUICK)
    assert all(start is None for _, start, _ in fits)


def test_starts_from_one_another_change_no_choice(comparison):
    warm = sf.compare(simulated().X, PRIORS, warm_start=True, **QUICK)
    assert warm.choice == comparison.choice
    np.testing.assert_allclose(warm.table["log_density"], comparison.table["log_density"], atol=1e-3)


def test_an_end_that_was_lost_is_made_again(tmp_path: Path, comparison):
    def stop(done: int, total: int, title: str) -> None:
        if done == 3:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        sf.compare(simulated().X, PRIORS, path=tmp_path, progress=stop, warm_start=True, **QUICK)
    ends = list(tmp_path.glob("*.npz"))
    assert ends
    ends[0].unlink()
    if len(ends) > 1:
        ends[1].write_bytes(b"damaged")
    done = sf.compare(simulated().X, PRIORS, path=tmp_path, warm_start=True, **QUICK)
    columns = ["prior", "mask", "error", "log_density"]
    expected = sf.compare(simulated().X, PRIORS, warm_start=True, **QUICK)
    pd.testing.assert_frame_equal(done.runs[columns], expected.runs[columns])
    assert not list(tmp_path.glob("*.npz"))


def test_sampling_can_be_compared():
    priors = {"1": PRIORS["1"], "2": PRIORS["2"], "3": sf.Prior(n_factors=3, inclusion=sf.Beta(1, 1))}
    done = sf.compare(
        simulated().X, priors, inference="mcmc", n_masks=2, n_chains=1, n_warmup=50, n_draws=100, n_jobs=1
    )
    assert done.choice == "2"


def test_the_number_of_factors_is_chosen():
    done = sf.choose_n_factors(simulated(0.05).X, [1, 2, 3], **QUICK)
    assert done.n_factors == 2
    assert "Chosen: 2" in str(done)


def test_the_sentence_and_the_numbers_agree(comparison):
    text = str(comparison)
    assert comparison.reason == ("Chosen: 2, which predicts best." if comparison.best == "2" else comparison.reason)
    assert comparison.reason in text
    assert all(f"\n{word}  " in text for word in ("n_factors", "found", "error", "log density", "loss vs best"))
    priors = {name: sf.Prior(n_factors=n) for n, name in enumerate("abc", start=1)}
    within = sf.Comparison(tabulated(runs_of(a=[0.0, 0.1, 0.2], b=[0.9, 1.2, 0.9], c=[1.0, 1.0, 1.1]), priors), None, 1)
    row = within.table.loc["b"]
    assert row["loss"] < row["loss_se"]
    lost = "0.03 ± 0.12"
    assert (f"{row['loss']:.2f} ± {row['loss_se']:.2f}") == lost
    assert within.reason == (
        f"Chosen: b, the fewest factors whose loss against the best (c) is within one standard error: {lost}."
    )
    assert lost in str(within)
    runs = runs_of(a=[0.0, 0.1, 0.2], b=[1.0, 1.0, 1.1], c=[1.0005, 1.0005, 1.1005])
    assert "below one nat in all: 0.0005" in sf.Comparison(tabulated(runs, priors), None, 1).reason
    small = sf.Comparison(tabulated(runs_of(a=[-1e-5, 1e-5, 3e-5], b=[3e-5, 0.0, 1e-5], c=[0.0] * 3), priors), None, 1)
    assert "0.000000" not in small.reason


def test_the_largest_candidate_is_warned_of_where_all_its_factors_are_used():
    with pytest.warns(UserWarning, match="2 is the largest number of factors offered, and all are used; offer more"):
        found = sf.choose_n_factors(simulated().X, [1, 2], **QUICK)
    assert found.n_factors == 2
    assert sf.choose_n_factors(simulated().X, [2, 3], **QUICK).advice == ""
    assert sf.choose_n_factors(simulated().X, [2], **QUICK).advice == ""  # there was nothing to choose


def test_the_picture_shows_every_prior(comparison):
    figure = comparison.plot()
    upper, lower = figure.axes
    assert [label.get_text() for label in lower.get_xticklabels()] == ["1", "2", "4"]
    assert upper.get_title() == "chosen: 2"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"priors": {}}, TypeError, "dict of names to Prior"),
        ({"priors": [sf.Prior(n_factors=2)]}, TypeError, "dict of names to Prior"),
        ({"n_masks": 1}, ValueError, "n_masks must be a whole number of at least 2"),
        ({"share": 1.5}, ValueError, "share must lie strictly between"),
        ({"share": 0.99}, ValueError, "the most is"),
        ({"inference": "em"}, ValueError, "inference must be one of"),
        ({"resume": "folder"}, ValueError, "resume cannot be an option"),
    ],
)
def test_what_cannot_be_compared_is_refused(change, error, message):
    settings = {"priors": PRIORS, **change}
    with pytest.raises(error, match=message):
        sf.compare(simulated().X, settings.pop("priors"), **settings)


@pytest.mark.parametrize("candidates", [3, [], "3", None])
def test_candidates_are_numbers_of_factors(candidates):
    with pytest.raises(TypeError, match="candidates must be numbers of factors"):
        sf.choose_n_factors(simulated().X, candidates)


def test_inclusion_by_factor_leaves_no_number_to_choose():
    with pytest.raises(ValueError, match="number of factors is open"):
        sf.choose_n_factors(simulated().X, [1, 2], prior=sf.Prior(inclusion=[0.1, 0.9]))


def test_hidden_entries_do_not_make_a_factor_of_the_means():
    sim = sf.simulate_paper(snr=25, seed=0)
    done = sf.choose_n_factors(sim.X + 3.0, [6, 7], n_masks=3, n_trials=3, tol=1e-2, n_jobs=1)
    assert list(done.runs["found"]) == [6] * 6
    assert done.n_factors == 6


def test_progress_is_a_bar_a_function_or_nothing(capsys):
    X, priors = simulated().X, {"one": sf.Prior(n_factors=1)}
    sf.compare(X, priors, progress=True, **QUICK)
    assert "Fits 100%" in capsys.readouterr().err
    sf.compare(X, priors, progress=False, **QUICK)
    assert capsys.readouterr().err == ""
    with pytest.raises(TypeError, match="progress must be True, False, None or a function; got 'yes'"):
        sf.compare(X, priors, progress="yes", **QUICK)


def test_warnings_are_left_to_the_log_in_one_thread_alone():
    """Several fits of a comparison run at once, and filters of Python's own belong to all threads."""
    from concurrent.futures import ThreadPoolExecutor

    from sparsefactor.notices import unwarned, warn

    class SettledWarning(UserWarning):
        pass

    class MixedWarning(UserWarning):
        pass

    with unwarned(SettledWarning), ThreadPoolExecutor(1) as pool:
        warn("not settled", SettledWarning)
        with pytest.raises(MixedWarning):
            warn("not mixed", MixedWarning)
        with pytest.raises(SettledWarning):
            pool.submit(warn, "not settled", SettledWarning).result()
    with pytest.raises(SettledWarning):
        warn("not settled", SettledWarning)
