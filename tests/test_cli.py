"""The command line, from a stranger's file to a report."""

import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import sparsefactor as sf
from sparsefactor.cli import app, console
from sparsefactor.cli.app import EXAMPLES
from sparsefactor.cli.spelling import as_options, spelt
from sparsefactor.kernels.cpu.compile_progress import COMPILING
from sparsefactor.notices import announce

RUNNER = CliRunner()
QUICK = ("--chains", 2, "--warmup", 2, "--draws", 3)


def invoke(*arguments: object):
    return RUNNER.invoke(app, [str(a) for a in arguments], catch_exceptions=False)


def run(*arguments: object, code: int = 0) -> str:
    done = invoke(*arguments)
    assert done.exit_code == code, done.output
    return done.output


def refused(*arguments: object) -> str:
    done = invoke(*arguments)
    assert done.exit_code == 1, done.output
    assert done.stderr.startswith("Error: ")
    assert len(done.stderr.strip().splitlines()) == 1
    return done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """X.csv with names and holes, fit.sf and draws.sf of it."""
    folder = tmp_path_factory.mktemp("cli")
    X = folder / "X.csv"
    run("simulate", "--features", 12, "--samples", 30, "--factors", 2, "--missing", 0.1, "--out", X)
    run("fit", X, "--factors", 3, "--trials", 2, "--out", folder / "fit.sf")
    run("sample", X, "--factors", 2, *QUICK, "--out", folder / "draws.sf", code=console.NOT_TRUSTED)
    return folder


@pytest.fixture
def table(folder) -> Path:
    return folder / "X.csv"


# ---- reading -------------------------------------------------------------------------------------------------------


def test_fit_states_what_it_read(table, tmp_path) -> None:
    text = run("fit", table, "--factors", 2, "--trials", 1, "--out", tmp_path / "p.sf")
    for words in (
        "comma-separated text",
        "30: sample 1, sample 2, sample 3, ...",
        "12: feature 1, feature 2, feature 3, ...",
        "(column sample)",
        "rows are  samples",
        "36 of 360 entries (10.0%)",
        "each feature's mean is subtracted",
        "--no-index",
        "--no-header",
        "--transpose if they are features",
        "--no-center",
        "--na WORD",
    ):
        assert words in text
    assert "Read" not in invoke("fit", table, "-k", 2, "--trials", 1, "--out", tmp_path / "q.sf", "--quiet").stderr


def test_numbers_without_names_are_fitted_whole(tmp_path) -> None:
    np.savetxt(tmp_path / "bare.csv", np.random.default_rng(0).normal(size=(60, 40)), delimiter=",")
    text = run("fit", tmp_path / "bare.csv", "--factors", 2, "--trials", 1, "--out", tmp_path / "p.sf")
    p = sf.load(tmp_path / "p.sf")
    assert (len(p.sample_names), len(p.feature_names)) == (60, 40)
    assert "60, without names" in text


def test_reading_options_reach_the_reader(tmp_path) -> None:
    rows = "\n".join(f"{j};{j * 7 % 5},5;{j * 3 % 4};-9;x{j}" for j in range(1, 9))
    (tmp_path / "a.txt").write_text("id;a;b;c;kind\n" + rows.replace("-9", "2", 5) + "\n")
    out = tmp_path / "p.sf"
    flags = ("--sep", ";", "--header", "--index", "id", "--na", "-9", "--decimal", ",", "--encoding", "ascii")
    done = invoke("fit", tmp_path / "a.txt", "-k", 1, "-o", out, *flags, "--drop", "kind", "--transpose", "--json")
    assert done.exit_code == 0, done.output
    read = json.loads(done.stdout)["read"]
    assert (read["n_samples"], read["n_features"], read["missing"]) == (3, 8, 3)
    assert read["samples_are"] == "columns"


def test_a_table_with_semicolons_is_not_fitted_as_one_column(tmp_path) -> None:
    X = tmp_path / "X.csv"
    body = "".join(f"p{j};{j * j % 7};{'k.A.' if j == 3 else j};{j},5\n" for j in range(9))
    X.write_text("person;a;b;grade\n" + body)
    assert "pass --na k.A. if it means missing" in refused("fit", X, "--factors", 1, "--out", tmp_path / "p.sf")
    X.write_text(body)  # without its header
    assert "Is the separator ';'? Pass --sep ';' if it is" in refused("fit", X, "-k", 1, "--out", tmp_path / "p.sf")


def test_tables_are_limited_in_size(tmp_path, table) -> None:
    out = tmp_path / "p.sf"
    said = refused("fit", table, "--factors", 1, "--max-bytes", 1000, "--out", out)
    assert "must take at most 1,000 bytes" in said
    assert "--max-bytes" in said
    known = tmp_path / "known.csv"
    known.write_text("sample,age\n" + "".join(f"sample {j + 1},{j % 7}\n" for j in range(30)))
    run("fit", table, "-k", 1, "--trials", 1, "--covariates", known, "--max-bytes", 100_000, "--out", out)
    known.write_text("age\n" + "1.5\n" * 1000)
    assert "known.csv" in refused(
        "fit", table, "-k", 1, "--covariates", known, "--max-bytes", 90_000, "--out", tmp_path / "q.sf", "--quiet"
    )
    assert "regular file" in refused("fit", "/dev/zero", "--factors", 1, "--out", tmp_path / "q.sf")


def test_ambiguous_tables_are_asked_about(tmp_path) -> None:
    (tmp_path / "a.csv").write_text("".join(f"{j},{j * 7 % 5},{j * 3 % 4}.5\n" for j in range(1, 9)))
    asked = refused("fit", tmp_path / "a.csv", "-k", 1, "-o", tmp_path / "p.sf")
    assert (
        "Is the first column of a.csv (1, 2, 3, ...) an ID or data? Pass --index 1 if it is an ID, --no-index" in asked
    )
    run("fit", tmp_path / "a.csv", "-k", 1, "-o", tmp_path / "p.sf", "--index", 1, "--trials", 1)
    assert len(sf.load(tmp_path / "p.sf").feature_names) == 2


def test_control_characters_of_names_do_not_reach_the_terminal(tmp_path) -> None:
    rows = "".join(f"s{j}\x1b[2J,{j * 7 % 5},{j * 3 % 4}\n" for j in range(1, 9))
    (tmp_path / "a.csv").write_text("id,\x1b[31mred\x07,b\n" + rows)
    text = run("fit", tmp_path / "a.csv", "-k", 1, "-o", tmp_path / "p.sf", "--trials", 1)
    text += run("summary", tmp_path / "p.sf")
    (tmp_path / "a.csv").write_text("id,\x1b[31mred,b\nx,inf,1\ny,2,3\n")
    text += refused("fit", tmp_path / "a.csv", "-k", 1, "-o", tmp_path / "q.sf", "--quiet")
    assert "\x1b" not in text
    assert "\x07" not in text
    assert text.count("\\x1b[31mred") >= 2


def test_nothing_that_is_said_steers_the_terminal(capsys) -> None:
    console.settings.quiet = console.settings.json = False
    for say in (console.note, console.warn, console.fail):
        say("a\x1b[2J\nb")
    console.answer("a\x1b[2J\nb", {})
    said = capsys.readouterr()
    assert (said.out + said.err).count("a\\x1b[2J\nb") == 4


# ---- where results go -----------------------------------------------------------------------------------------------


@pytest.fixture
def no_work(monkeypatch) -> None:
    """Work before the check of --out would be seen."""

    def work(*_: object, **__: object) -> None:
        raise AssertionError("work was done before --out was checked")

    for name in ("fit_vi", "sample", "load"):
        monkeypatch.setattr(sf, name, work, raising=False)
    monkeypatch.setattr("sparsefactor.cli.input.read", work)


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("verb", ["fit", "sample"])
def test_a_wrong_out_is_refused_before_the_work(verb, table, tmp_path, monkeypatch) -> None:
    assert "is a folder" in refused(verb, table, "-k", 2, "--out", tmp_path)
    assert "mkdir -p" in refused(verb, table, "-k", 2, "--out", tmp_path / "no" / "p.sf")
    assert "must not be the input" in refused(verb, table, "-k", 2, "--out", table)
    (tmp_path / "thesis.doc").write_text("years of work")
    assert "holds something else" in refused(verb, table, "-k", 2, "--out", tmp_path / "thesis.doc")

    def full(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sparsefactor.cli.files.tempfile.TemporaryFile", full)
    assert "No space left" in refused(verb, table, "-k", 2, "--out", tmp_path / "p.sf")


@pytest.mark.usefixtures("no_work")
def test_every_command_checks_where_its_result_goes(folder, table, tmp_path) -> None:
    fit, lost = folder / "fit.sf", tmp_path / "no" / "x.csv"
    for arguments in (
        ("export", fit, "--out", tmp_path / "no" / "tables"),
        ("impute", fit, table, "--out", lost),
        ("impute", fit, table, "--out", tmp_path / "x.csv", "--sd", lost),
        ("transform", fit, table, "--out", lost),
        ("plot", "heatmap", fit, "--out", tmp_path / "no" / "x.png"),
        ("report", fit, "--out", tmp_path / "no" / "r.html"),
        ("simulate", "--out", lost),
    ):
        assert "must exist" in refused(*arguments)
    assert "must end in" in refused("impute", fit, table, "--out", tmp_path / "x.txt")
    assert "must not be the input" in refused("report", fit, "--out", fit)


@pytest.mark.usefixtures("no_work")
def test_a_file_that_is_there_is_not_replaced_without_asking(folder, table, tmp_path) -> None:
    fit, there = folder / "fit.sf", tmp_path / "there.csv"
    for file in ("there.csv", "there.png", "there.html", "there.truth.npz"):
        (tmp_path / file).write_text("mine")
    for arguments in (
        ("fit", table, "-k", 2, "--out", fit),
        ("sample", table, "-k", 2, "--out", fit),
        ("export", fit, "--table", "loadings", "--out", there),
        ("impute", fit, table, "--out", there),
        ("impute", fit, table, "--out", tmp_path / "new.csv", "--sd", there),
        ("transform", fit, table, "--out", there),
        ("compare", table, "--factors", "1,2", "--out", there),
        ("plot", "heatmap", fit, "--out", tmp_path / "there.png"),
        ("report", fit, "--out", tmp_path / "there.html"),
    ):
        assert "exists; pass another name, or --overwrite" in refused(*arguments)
        with pytest.raises(AssertionError, match="work"):  # --overwrite gets past it
            invoke(*arguments, "--overwrite", "--debug")
    for out in ("there.csv", "there.txt"):  # the second's truth is there
        assert "exists" in refused("simulate", "--features", 3, "--out", tmp_path / out)
    assert there.read_text() == "mine"


def test_overwrite_replaces(folder, tmp_path) -> None:
    out = tmp_path / "tables"
    run("export", folder / "fit.sf", "--table", "loadings", "--out", out)
    (out / "loadings.csv").write_text("mine")
    assert "loadings.csv' exists" in refused("export", folder / "fit.sf", "--table", "loadings", "--out", out)
    run("export", folder / "fit.sf", "--table", "loadings", "--out", out, "--overwrite")
    assert (out / "loadings.csv").read_text() != "mine"


def test_fit_searches_as_python_does(table, tmp_path, monkeypatch) -> None:
    asked = {}

    def fit(X, prior, **settings):
        asked.update(settings)
        raise ValueError("enough")

    monkeypatch.setattr(sf, "fit_vi", fit)
    assert "enough" in refused("fit", table, "-k", 2, "--out", tmp_path / "p.sf", "--quiet")
    assert asked["n_trials"] == "auto"
    assert "enough" in refused("fit", table, "-k", 2, "--out", tmp_path / "p.sf", "--quiet", "--trials", 3)
    assert asked["n_trials"] == 3


def test_fit_and_summary_say_how_sure_the_search_is(table, tmp_path) -> None:
    done = invoke("fit", table, "-k", 2, "--trials", 3, "--out", tmp_path / "p.sf", "--json")
    sure = json.loads(done.stdout)["certainty"]
    assert "restarts" in sure
    assert sure in done.stderr
    assert sure in run("summary", tmp_path / "p.sf")


def test_sample_needs_a_place(table) -> None:
    assert "--path FOLDER" in refused("sample", table, "-k", 2)


# ---- sampling ------------------------------------------------------------------------------------------------------


def test_bad_draws_cannot_be_mistaken_for_good_ones(table, tmp_path) -> None:
    done = invoke("sample", table, "-k", 2, *QUICK, "--out", tmp_path / "p.sf")
    assert done.exit_code == console.NOT_TRUSTED
    assert "Not reliable yet" in done.stdout
    assert "--draws 6" in done.stdout
    assert "not reliable yet" in done.stderr
    assert (tmp_path / "p.sf.run").is_dir()
    # The remedy can be followed: the run goes on.
    again = invoke("sample", table, "-k", 2, *QUICK[:-1], 6, "--out", tmp_path / "p.sf", "--json")
    assert json.loads(again.stdout)["ok"] is False
    assert sf.load(tmp_path / "p.sf").permutations.shape[1] == 6


@pytest.mark.parametrize(
    "python",
    ["run longer (the same path with larger n_draws continues the run)", "run more chains (n_chains=4) and draws"],
)
def test_remedies_are_options(python) -> None:
    text = spelt(f"Bad. Remedy: {python}; or look at one mode: keep_chains([0, 2]).", 100)
    assert "n_draws" not in text
    assert "n_chains" not in text
    assert "--draws 200" in text
    assert "--chains 0,2" in text


def test_remedies_that_only_python_has_are_left_out() -> None:
    modes = 'keep one mode: keep_chains([0]); or weight the chains by how well they predict: combine("stacking", X).'
    assert spelt(modes, 10).endswith("--chains 0; or sample again with fewer --factors.")
    heywood = "Remove duplicates, lower n_factors, or raise noise_rate."
    assert as_options(heywood) == "Remove duplicates or lower --factors."
    assert as_options("fit again with another seed; raise max_iter, or pass a larger tol.") == (
        "fit again with another --seed; raise --max-iter."
    )


def test_settings_in_errors_are_options(tmp_path) -> None:
    (tmp_path / "one.csv").write_text("id,a,b\nx,1,2\n")
    text = refused("fit", tmp_path / "one.csv", "-k", 1, "-o", tmp_path / "p.sf", "--quiet")
    assert "pass --no-center" in text
    python = "has seed=1; got seed=2; pass seed=1, or another path; raise max_iter; pass header=True"
    options = "has --seed 1; got --seed 2; pass --seed 1, or another --path; raise --max-iter; pass --header"
    assert as_options(python) == options
    assert as_options("got 3 seeds; a noise of its own; n_samples=3") == "got 3 seeds; a noise of its own; n_samples=3"


@pytest.mark.parametrize(
    ("python", "options"),
    [
        ("pass na=['k.A.', '?? ?'] if they mean", "pass --na k.A. --na '?? ?' if they mean"),
        ("drop=['a', 'b c'] or drop=['a,b', 'c']", "--drop 'a,b c' or --drop a,b --drop c"),
        ("columns='A1:O5', index='id', index=False", "--columns A1:O5, --index id, --no-index"),
        ("sep=';' or sep='\\t' or sep=...", "--sep ';' or --sep tab or --sep"),
        ("transpose=True, transpose=False, max_bytes=80", "--transpose, --no-transpose, --max-bytes 80"),
        ('drop=["it\'s"]', "--drop 'it'\"'\"'s'"),
        ("keep=['99'], skip=2, decimal=','", "--keep 99, --skip 2, --decimal ,"),
        ("a column that holds na=x", "a column that holds na=x"),
    ],
)
def test_settings_of_reading_are_options(python, options) -> None:
    assert as_options(python) == options


def test_every_remedy_of_a_verdict_is_an_option(folder) -> None:
    verdict = str(sf.load(folder / "draws.sf").verdict)
    assert "n_draws" in verdict or "n_chains" in verdict  # the words that must be replaced
    assert not {"n_draws", "n_chains", "keep_chains"} & set(spelt(verdict, 3).replace("(", " ").split())


def test_good_draws_leave_no_run_behind(table, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("sparsefactor.diagnostics.verdict.R_HAT_LIMIT", np.inf)
    monkeypatch.setattr("sparsefactor.diagnostics.verdict.ESS_PER_CHAIN", 0)
    options = ("--chains", 2, "--warmup", 20, "--draws", 20)
    text = run("sample", table, "-k", 2, *options, "--out", tmp_path / "p.sf")
    assert "The draws can be used" in text
    assert not (tmp_path / "p.sf.run").exists()
    run("sample", table, "-k", 2, *options, "--path", tmp_path / "run")
    assert (tmp_path / "run").is_dir()
    assert "The draws can be used" in run("summary", tmp_path / "run")


def test_until_converged_goes_on_by_itself(table, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("sparsefactor.diagnostics.verdict.ESS_PER_CHAIN", 1000)  # never enough
    options = ("--chains", 2, "--warmup", 2, "--draws", 4, "--until", "converged")
    done = invoke("sample", table, "-k", 2, *options, "--out", tmp_path / "p.sf", "--json")
    assert done.exit_code == console.NOT_TRUSTED
    assert json.loads(done.stdout)["draws"] == 64
    run("sample", table, "-k", 2, *options, "--max-seconds", 0, "--path", tmp_path / "run", code=console.NOT_TRUSTED)
    assert sf.load(tmp_path / "run").permutations.shape[1] == 4


def test_resume_needs_a_run(table, tmp_path) -> None:
    assert "--path to begin one" in refused("sample", table, "-k", 2, "--resume", tmp_path / "none")
    assert "must agree" in refused("sample", table, "-k", 2, "--resume", tmp_path, "--path", tmp_path / "a")


def test_an_interrupt_keeps_the_draws_and_says_how_to_go_on(table, tmp_path) -> None:
    arguments = ["sample", str(table), "-k", "2", "--draws", "1000000", "--chains", "2", "--out", "p.sf"]
    process = subprocess.Popen(
        [sys.executable, "-m", "sparsefactor", *arguments], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    for _ in range(1200):
        if (tmp_path / "p.sf.run" / "checkpoints").exists() or process.poll() is not None:
            break
        time.sleep(0.1)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == console.INTERRUPTED, said
    assert "kept in p.sf.run" in said
    assert f"sparsefactor {shlex.join(arguments)}" in said
    assert "Traceback" not in said
    assert (tmp_path / "p.sf.run" / "checkpoints").is_dir()


# ---- fits ----------------------------------------------------------------------------------------------------------


def test_fit_keeps_names_and_has_the_prior_of_python(folder) -> None:
    p = sf.load(folder / "fit.sf")
    assert list(p.feature_names[:2]) == ["feature 1", "feature 2"]
    assert p.sample_names[0] == "sample 1"
    X = sf.read_table(folder / "X.csv")
    same = sf.fit_vi(X, n_factors=3, n_trials=2)
    np.testing.assert_array_equal(p.loadings_mean, same.loadings_mean)
    assert p.prior.learns_inclusion
    assert np.any(p.labels.offset != 0)


def test_centring_and_scaling_are_options(folder, table, tmp_path) -> None:
    X, out = sf.read_table(table), tmp_path / "p.sf"
    run("fit", table, "-k", 2, "--trials", 1, "--scale", "--out", out)
    np.testing.assert_allclose(sf.load(out).labels.scale, X.std(ddof=0), rtol=0.05)
    text = run("fit", table, "-k", 2, "--trials", 1, "--no-center", "--out", out, "--overwrite")
    assert "--center" in text
    assert not sf.load(out).labels.offset.any()


def test_a_fit_that_has_not_converged_says_so(table, tmp_path) -> None:
    done = invoke("fit", table, "-k", 2, "--max-iter", 1, "--trials", 1, "--out", tmp_path / "p.sf")
    assert done.exit_code == console.NOT_TRUSTED
    assert "--max-iter" in done.stderr


def test_modules(table, tmp_path) -> None:
    run("fit", table, "--factors", 2, "--modules", 3, "--trials", 2, "--out", tmp_path / "p.sf")
    p = sf.load(tmp_path / "p.sf")
    assert p.module_prob.shape == (12, 3)


def test_compiling_is_announced_once(table, tmp_path, monkeypatch) -> None:
    def compiles(*_, **__):
        announce(COMPILING)
        announce(COMPILING)
        raise ValueError("enough")

    monkeypatch.setattr(sf, "fit_vi", compiles, raising=False)
    done = invoke("fit", table, "-k", 2, "--out", tmp_path / "p.sf")
    assert done.stderr.count(COMPILING) == 1
    assert COMPILING not in invoke("fit", table, "-k", 2, "--out", tmp_path / "p.sf", "--quiet").stderr


# ---- looking --------------------------------------------------------------------------------------------------------


def test_summary_lists_factors(folder) -> None:
    assert run("summary", folder / "fit.sf").startswith(("The fit converged.", "Use with caution: "))
    facts = json.loads(invoke("summary", folder / "fit.sf", "--json").stdout)
    assert facts["ok"] is True
    assert [row["factor"] for row in facts["factors"]] == [1, 2, 3]
    assert 0 < facts["factors"][0]["share_of_variance"] <= facts["variance_explained"] < 1
    facts = json.loads(invoke("summary", folder / "draws.sf", "--json").stdout)
    assert facts["ok"] is False
    assert facts["level"] == "bad"
    assert "Not reliable yet" in facts["verdict"]


def test_long_names_leave_room_for_the_others(tmp_path) -> None:
    names = [letter * 90 for letter in "abcdef"]
    X = sf.simulate(n_features=6, n_samples=20, inclusion=[0.9], snr=5, seed=0).X
    pd.DataFrame(X, columns=names).to_csv(tmp_path / "long.csv", index=False)
    run("fit", tmp_path / "long.csv", "-k", 1, "--trials", 1, "-o", tmp_path / "p.sf")
    line = next(line for line in run("summary", tmp_path / "p.sf").splitlines() if "..." in line)
    assert line.count("...") == 3  # all three of the strongest
    assert len(line) < 140


def test_chains_can_be_chosen(folder) -> None:
    assert "1 chain of 3 draws" in run("summary", folder / "draws.sf", "--chains", 1)
    assert "pass e.g. 0,2" in refused("summary", folder / "draws.sf", "--chains", "one")
    assert "leave it out" in refused("summary", folder / "fit.sf", "--chains", 1)


@pytest.mark.parametrize("result", ["fit.sf", "draws.sf"])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_every_table_is_exported(folder, tmp_path, result, suffix) -> None:
    run("export", folder / result, "--out", tmp_path / "t", "--format", suffix)
    p = sf.load(folder / result)
    names = {file.stem for file in (tmp_path / "t").iterdir()}
    assert names >= {"summary", "loadings", "loadings_sd", "inclusion", "activations", "activations_sd", "features"}
    assert ("trials" in names) == (result == "fit.sf")
    assert ("diagnostics" in names) == (result == "draws.sf")
    file = tmp_path / "t" / f"loadings.{suffix}"
    frame = pd.read_csv(file, index_col=0) if suffix == "csv" else pd.read_parquet(file)
    np.testing.assert_allclose(frame.to_numpy(), p.loadings_mean, rtol=1e-12)
    assert list(frame.index) == list(p.feature_names)
    assert frame.columns[0] == "factor 1"


def test_one_table_or_a_workbook(folder, tmp_path) -> None:
    run("export", folder / "fit.sf", "--table", "reconstruction", "--out", tmp_path / "r.csv")
    frame = pd.read_csv(tmp_path / "r.csv", index_col=0)
    np.testing.assert_allclose(frame.to_numpy(), sf.load(folder / "fit.sf").reconstruct(), rtol=1e-12)
    run("export", folder / "fit.sf", "--out", tmp_path / "all.xlsx")
    with pd.ExcelFile(tmp_path / "all.xlsx") as book:
        assert {"loadings", "trials"} <= set(book.sheet_names)
    assert "choose one" in refused("export", folder / "fit.sf", "--table", "nonsense", "--out", tmp_path / "t")
    assert "one file holds one table" in refused("export", folder / "fit.sf", "--out", tmp_path / "t.csv")


def test_impute_fills_what_was_missing(folder, table, tmp_path) -> None:
    run("impute", folder / "fit.sf", table, "--out", tmp_path / "f.csv", "--sd", tmp_path / "sd.csv")
    X, filled, sd = (sf.read_table(f) for f in (table, tmp_path / "f.csv", tmp_path / "sd.csv"))
    missing = X.isna().to_numpy()
    assert missing.sum() == 36
    assert not filled.isna().to_numpy().any()
    np.testing.assert_allclose(filled.to_numpy()[~missing], X.to_numpy()[~missing])
    assert (sd.to_numpy()[missing] > 0).all()
    assert (sd.to_numpy()[~missing] == 0).all()
    assert list(filled.index) == list(X.index)


FORMULAS = ["=cmd|' /C calc'!A0", '=HYPERLINK("http://example.org","x")', "+1", "-1+2", "@SUM(A1)", "plain"]


def test_names_are_text_in_workbooks_and_as_they_are_in_csv(tmp_path) -> None:
    import openpyxl

    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(8, 6)), [f"={j}+1" for j in range(8)], FORMULAS)
    frame.to_csv(tmp_path / "X.csv", index_label="name")
    run("fit", tmp_path / "X.csv", "--sep", ",", "-k", 1, "--trials", 1, "--out", tmp_path / "p.sf")
    run("export", tmp_path / "p.sf", "--out", tmp_path / "all.xlsx")
    run("export", tmp_path / "p.sf", "--table", "loadings", "--out", tmp_path / "one.xlsx")
    run("impute", tmp_path / "p.sf", tmp_path / "X.csv", "--sep", ",", "--out", tmp_path / "filled.xlsx")
    run("impute", tmp_path / "p.sf", tmp_path / "X.csv", "--sep", ",", "--out", tmp_path / "filled.csv")
    for name in ("all", "one", "filled"):
        book = openpyxl.load_workbook(tmp_path / f"{name}.xlsx")
        cells = [cell for sheet in book for row in sheet.iter_rows() for cell in row]
        assert not [cell.value for cell in cells if cell.data_type == "f"]
        risky = [cell for cell in cells if isinstance(cell.value, str) and cell.value[0] in "=+-@"]
        assert len(risky) >= 5
        assert all(cell.quotePrefix for cell in risky)
    assert list(pd.read_excel(tmp_path / "one.xlsx", index_col=0).index) == FORMULAS
    pd.testing.assert_frame_equal(sf.read_table(tmp_path / "filled.xlsx"), frame)
    assert list(pd.read_csv(tmp_path / "filled.csv", index_col=0).columns) == FORMULAS


def test_control_characters_in_names_are_refused_in_workbooks(tmp_path) -> None:
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(8, 3)), columns=["a", "b\x01", "c"])
    sf.fit_vi(X, n_factors=1, n_trials=1).save(tmp_path / "p.sf")
    assert "control characters" in refused("export", tmp_path / "p.sf", "--out", tmp_path / "all.xlsx")
    assert not (tmp_path / "all.xlsx").exists()


def test_impute_leaves_the_table_as_it_lay(folder, table, tmp_path) -> None:
    sf.read_table(table).T.to_csv(tmp_path / "turned.csv")
    run("impute", folder / "fit.sf", tmp_path / "turned.csv", "--transpose", "--out", tmp_path / "f.csv")
    run("impute", folder / "fit.sf", table, "--out", tmp_path / "g.csv")
    np.testing.assert_allclose(sf.read_table(tmp_path / "f.csv").T, sf.read_table(tmp_path / "g.csv"))


def test_transform_writes_activations(folder, table, tmp_path) -> None:
    run("transform", folder / "fit.sf", table, "--out", tmp_path / "a.csv", "--sd", tmp_path / "sd.csv")
    frame = pd.read_csv(tmp_path / "a.csv", index_col=0)
    np.testing.assert_allclose(frame, sf.load(folder / "fit.sf").activations_mean, atol=1e-3)
    assert list(frame.columns) == ["factor 1", "factor 2", "factor 3"]


def test_compare_chooses_a_number_of_factors(table, tmp_path) -> None:
    options = ("--factors", "1,2", "--masks", 2, "--trials", 1, "--out", tmp_path / "c.csv")
    assert "Chosen: " in run("compare", table, *options)
    facts = json.loads(invoke("compare", table, *options, "--json", "--overwrite").stdout)
    assert facts["chosen"] in (1, 2)
    assert list(pd.read_csv(tmp_path / "c.csv")["n_factors"]) == [1, 2]
    assert "pass e.g. 2,4,6" in refused("compare", table, "--factors", "two")


@pytest.mark.parametrize("kind", [*sf.plot.KINDS])
def test_every_plot_of_a_result(folder, tmp_path, kind) -> None:
    result = folder / ("draws.sf" if kind in ("trace", "rank", "agreement") else "fit.sf")
    if kind == "variance_by_group":
        assert "Prior(groups=...)" in refused("plot", kind, result, "--out", tmp_path / "p.png")
        return
    run("plot", kind, result, "--out", tmp_path / "p.png", "--dpi", 40)
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_plots_of_factors_and_of_data(folder, table, tmp_path) -> None:
    out = tmp_path / "p.svg"
    for arguments in (
        ("top-loadings", folder / "fit.sf", "--factor", 2),
        ("scatter", folder / "fit.sf", "--factor", 2, "--factor", 1),
        ("missingness", table),
        ("observed_fitted", folder / "fit.sf", "--data", table),
    ):
        run("plot", *arguments, "--out", out)
        assert "<svg" in out.read_text()
        out.unlink()
    assert "pass --data" in refused("plot", "observed_fitted", folder / "fit.sf", "--out", out)
    assert "at most" in refused("plot", "elbo", folder / "fit.sf", "--factor", 1, "--out", out)
    assert "from 1 to 3" in refused("plot", "activations", folder / "fit.sf", "--factor", 0, "--out", out)
    assert "choose one of them" in refused("plot", "pie", folder / "fit.sf", "--out", out)
    assert "must end in" in refused("plot", "elbo", folder / "fit.sf", "--out", tmp_path / "p.doc")


def test_report_is_a_page(folder, tmp_path) -> None:
    assert str(tmp_path / "r.html") in run("report", folder / "fit.sf", "--out", tmp_path / "r.html")
    assert "<!doctype html>" in (tmp_path / "r.html").read_text()
    run("report", folder / "draws.sf", "--out", tmp_path / "d.html")
    page = (tmp_path / "d.html").read_text()
    assert "--draws 6" in page  # the remedy as it is written here
    assert "larger n_draws" not in page


# ---- the shell ------------------------------------------------------------------------------------------------------


def test_version_and_module() -> None:
    assert run("--version") == f"sparsefactor {sf.__version__}\n"
    done = subprocess.run([sys.executable, "-m", "sparsefactor", "--version"], capture_output=True, text=True)
    assert done.stdout == f"sparsefactor {sf.__version__}\n"


def test_errors_are_one_line_unless_debugged(tmp_path) -> None:
    arguments = [sys.executable, "-m", "sparsefactor", "fit", "none.csv", "-k", "2", "-o", "p.sf"]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: data must be a file; 'none.csv' does not exist")
    assert len(done.stderr.strip().splitlines()) == 1
    done = subprocess.run([*arguments, "--debug"], capture_output=True, text=True, cwd=tmp_path)
    assert "Traceback" in done.stderr


def test_an_interrupted_fit_is_saved(table, tmp_path, monkeypatch) -> None:
    from sparsefactor.vi import fit

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fit, "refined", interrupted)
    text = run("fit", table, "-k", 2, "--out", tmp_path / "p.sf", code=console.INTERRUPTED)
    assert "best state so far" in text
    assert sf.load(tmp_path / "p.sf").status is sf.Status.INTERRUPTED


def test_benchmark_prints_milliseconds() -> None:
    text = invoke("benchmark", "--features", 40, "--samples", 12, "--factors", 2, "--sweeps", 3).stdout
    assert text.count(" ms") == 2


LINES = [line for examples in EXAMPLES for line in examples]


def test_every_command_has_an_example_in_its_help() -> None:
    assert all(EXAMPLES), "a command has no example"
    for verb in (
        "simulate",
        "fit",
        "sample",
        "summary",
        "export",
        "impute",
        "transform",
        "plot",
        "report",
        "benchmark",
    ):
        own = [line for line in LINES if line.split()[1] == verb]
        assert own[0] in " ".join(invoke(verb, "--help").output.split()).replace(" #", "     #"), verb


@pytest.mark.slow
def test_examples_of_the_help_run(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = [line for line in LINES if " simulate " in line]
    for line in (*first, *(line for line in LINES if line not in first)):
        done = invoke(*shlex.split(line, comments=True)[1:])
        assert done.exit_code in (console.DONE, console.NOT_TRUSTED), (line, done.output)


def test_raw_wine_is_more_than_its_largest_numbers(tmp_path) -> None:
    """Uncentred, one factor held the means, 99.8 % of the squares, and was called proline."""
    from sklearn.datasets import load_wine

    wine = load_wine(as_frame=True).data
    wine.to_csv(tmp_path / "wine.csv", index=False)
    own = ("--trials", 3, "--factor-correlation", "none", "-o", tmp_path / "wine.sf")
    said = invoke("fit", tmp_path / "wine.csv", "-k", 5, *own).stderr
    assert "centred   each feature's mean is subtracted  --no-center" in said
    assert "scaled    no                                 --scale" in said
    p = sf.load(tmp_path / "wine.sf")
    shares = p.variance_explained(by="factor")
    assert shares[0] < 0.9
    assert (~p.empty).sum() > 1
    assert p.summary()["features"].iloc[0] > 1
    np.testing.assert_allclose(p.reconstruct().mean(axis=0), wine.mean(), rtol=1e-6)


def test_factors_may_be_kept_uncorrelated(table, tmp_path):
    for choice in ("learnt", "none"):
        out = tmp_path / f"{choice}.sf"
        run("fit", table, "--factors", 3, "--factor-correlation", choice, "--out", out)
        p = sf.load(out)
        assert p.prior.factor_correlation == choice
        off_diagonal = p.factor_correlation_mean[~np.eye(3, dtype=bool)]
        assert np.any(off_diagonal != 0) == (choice == "learnt")
