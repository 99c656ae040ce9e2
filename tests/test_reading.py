"""Foreign files: what they say is what is read, and what may mean two things is asked for."""

import bz2
import csv
import gzip
import lzma
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.helpers.rds import as_rds

import sparsefactor as sf
from sparsefactor.reading import AmbiguousTableError, Choices, read
from sparsefactor.reading.names import shown

RNG = np.random.default_rng(0)
NUMBERS = RNG.normal(size=(60, 40))


def lines(values, sep=",", rows=None, columns=None, corner="", form="{!r}") -> str:
    """A table as text."""
    body = [sep.join(form.format(float(v)) for v in row) for row in values]
    if rows is not None:
        body = [f"{name}{sep}{line}" for name, line in zip(rows, body, strict=True)]
    if columns is not None:
        body.insert(0, sep.join([*([corner] if rows is not None else []), *columns]))
    return "\n".join(body) + "\n"


SAMPLES = [f"s{j}" for j in range(60)]
FEATURES = [f"gene {i}" for i in range(40)]


@pytest.fixture
def file(tmp_path):
    def write(content: str | bytes, name: str = "X.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def assert_whole(frame: pd.DataFrame, rows: bool, columns: bool) -> None:
    np.testing.assert_allclose(frame.to_numpy(), NUMBERS, rtol=1e-14)
    assert list(frame.index) == (SAMPLES if rows else list(range(60)))
    assert list(frame.columns) == (FEATURES if columns else list(range(40)))


# ---- names or numbers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sep", [",", "\t", ";", "|"])
@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("columns", [False, True])
def test_every_number_is_kept_with_or_without_names(file, sep, rows, columns) -> None:
    text = lines(NUMBERS, sep, SAMPLES if rows else None, FEATURES if columns else None)
    assert_whole(sf.read_table(file(text)), rows, columns)


def test_spaces_as_r_writes_them(file) -> None:
    quoted = [f'"{name}"' for name in FEATURES]
    text = " ".join(quoted) + "\n" + lines(NUMBERS, " ", [f'"{name}"' for name in SAMPLES])
    assert_whole(sf.read_table(file(text, "X.txt")), True, True)
    aligned = "\n".join("  " + "   ".join(f"{v:8.4f}" for v in row) for row in NUMBERS)
    np.testing.assert_allclose(sf.read_table(file(aligned, "X.dat")), NUMBERS, atol=1e-4)


def test_a_header_one_short_means_a_column_of_names(file) -> None:
    assert_whole(sf.read_table(file(",".join(FEATURES) + "\n" + lines(NUMBERS, rows=SAMPLES))), True, True)


def test_numbers_under_an_empty_title_are_names(file) -> None:
    text = pd.DataFrame(NUMBERS).to_csv()
    frame = sf.read_table(file(text))
    assert frame.shape == (60, 40)
    assert list(frame.columns[:3]) == ["0", "1", "2"]
    text = lines(NUMBERS, rows=[str(j) for j in range(1, 61)], columns=FEATURES, corner='""')
    assert sf.read_table(file(text)).shape == (60, 40)


AMBIGUOUS = {
    "numbered columns": (lines(NUMBERS, columns=[str(i) for i in range(40)]), "header"),
    "years": ("country,1990,1991\nFrance,0.5,0.7\nSpain,0.1,0.2\n", "header"),
    "years alone": ("1990,1991,1995\n0.5,0.7,0.1\n0.1,0.2,0.3\n", "header"),
    "wavelengths": ("probe 1,400.5,401.0,401.5,402.0\nx,1.5,0.5,1.0,2.0\ny,0.5,1,2,0\n", "header"),
    "lines by year": (lines(NUMBERS, rows=[str(1950 + j) for j in range(60)]), "1"),
    "lines by number": ("17,0.5,1.5\n4,0.5,2.5\n9,1.5,1.25\n", "1"),
    "numbered lines": (lines(NUMBERS, rows=[str(j) for j in range(1, 61)]), "1"),
    "ids, one of them missing": ("id,a,b\nNA,0.5,1\n4,0.5,2\n", "id"),
    "counter": ("t,a,b\n1,0.5,1\n2,0.5,2\n3,4,5\n", "t"),
    "numbers that rise": ("dose,a,b\n1,0,1\n2,5,2\n9,4,5\n10,1,1\n25,5,2\n90,4,5\n", "dose"),
    "decimals under no title": (",a,b\n1.5,0.5,1.5\n2.5,0.5,2.5\n", "1"),
}


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_what_may_be_names_or_data_is_asked_for(file, case) -> None:
    text, what = AMBIGUOUS[case]
    path = file(text)
    if what == "header":
        question = r"Is the first line of X\.csv \(.*\) a header or data\? Pass header=True or header=False"
        answers: list = [{"header": True}, {"header": False}]
    else:
        question = rf"Is the first column of X\.csv \(.*\) an ID or data\? Pass index='{what}'.*, index=False"
        answers = [{"index": what}, {"index": False}]
    with pytest.raises(AmbiguousTableError, match=question):
        sf.read_table(path)
    with_names, without = (sf.read_table(path, **answer) for answer in answers)
    assert without.size > with_names.size


TITLES = ["id", "ID", "name", "Row.Names", "rownames", "subject", "Subject_ID", "sample", "Sample Name", "participant"]


@pytest.mark.parametrize("title", [*TITLES, "case no", "ResponseId", "", "Unnamed: 0", "...1"])
def test_ids_by_their_title_name_the_rows(file, title) -> None:
    path = file(f"{title},a,b\n17,1,2\n41,1,2.5\n109,4,1\n")
    table = read(path, Choices())
    assert (list(table.frame.index), list(table.frame.columns)) == (["17", "41", "109"], ["a", "b"])
    assert table.parsed.index == title
    assert list(sf.read_table(path, index=False).columns)[1:] == ["a", "b"] or not title
    repeated = file(f"{title},a,b\n17,1,2\n17,1,2.5\n109,4,1\n", "Y.csv")
    if title in ("", "Unnamed: 0", "...1"):
        with pytest.raises(AmbiguousTableError, match="ID or data"):
            sf.read_table(repeated)
    else:
        assert sf.read_table(repeated).shape == (3, 3)  # a number that repeats is no ID


def test_the_column_of_names_can_be_any(file) -> None:
    path = file("age,score,who,b\n31,1,x,2\n32,3,y,4\n39,3,z,5\n")
    frame = sf.read_table(path, index="who")
    assert (list(frame.index), list(frame.columns)) == (["x", "y", "z"], ["age", "score", "b"])
    assert list(sf.read_table(path, index="3", columns="score,b").columns) == ["score", "b"]
    with pytest.raises(ValueError, match=r"index must name columns of X\.csv; got 'Who'; did you mean 'who'\?"):
        sf.read_table(path, index="Who")
    with pytest.raises(TypeError, match="index must be"):
        sf.read_table(path, index=3)


def test_columns_by_range_list_and_number(file) -> None:
    path = file("id,sex,A1,A2,A3,O1,note\n" + "".join(f"{j * 7},m,{j % 5},2,{j % 3},4,x\n" for j in range(1, 9)))
    for given in ("A1:O1", ["A1:A3", "O1"], "A1:A3,O1", "3:6", ["A1", "A2", "A3,O1"]):
        frame = sf.read_table(path, columns=given)
        assert (list(frame.columns), frame.index[0]) == (["A1", "A2", "A3", "O1"], "7")
    assert list(sf.read_table(path, drop="sex,note,A2:O1").columns) == ["A1"]
    assert list(sf.read_table(path, columns="A1:O1", drop=["A2"]).columns) == ["A1", "A3", "O1"]
    with pytest.raises(ValueError, match=r"columns must name columns of X\.csv; got 'O5'; did you mean 'O1'"):
        sf.read_table(path, columns="A1:O5")
    odd = file('id,"a,b",c:d,e\n' + "x,1,2,3\ny,2,5,4\n", "odd.csv")  # titles that hold commas and colons
    assert list(sf.read_table(odd, columns=["a,b", "c:d"]).columns) == ["a,b", "c:d"]
    assert list(sf.read_table(odd, columns="c:d:e").columns) == ["c:d", "e"]
    assert sf.read_table(file("1.5,2,7\n3.5,4,1\n", "bare.csv"), columns="2:3").shape == (2, 2)


def test_a_title_such_as_name_makes_a_header_of_numbers(file) -> None:
    frame = sf.read_table(file("name,0.7,0.2\nx,1,2\ny,3,4\n"))
    assert (list(frame.index), list(frame.columns)) == (["x", "y"], ["0.7", "0.2"])


@pytest.mark.parametrize("seed", range(3))
def test_what_pandas_writes_is_read_as_it_was_or_asked_for(file, seed) -> None:
    """Names of text, running numbers or years; any separator; any spelling of missing: never a wrong shape or name."""
    rng = np.random.default_rng(seed)
    answers = []
    for _ in range(60):
        n, p = int(rng.integers(3, 31)), int(rng.integers(3, 12))
        kinds = {"text": "n{}", "spaces": "a b {}", "commas": "a,b;{}", "quotes": 'say "{}"', "dates": "2020-01-{:02d}"}
        numbers = {"from 0": 0, "from 1": 1, "years": 1990}
        rows, columns = (
            [kinds[kind].format(i) if kind in kinds else numbers[kind] + i for i in range(size)]
            for size, kind in ((n, rng.choice([*kinds, *numbers])), (p, rng.choice([*kinds, *numbers])))
        )
        X = rng.normal(size=(n, p)) if rng.random() < 0.5 else rng.poisson(3, size=(n, p)).astype(float)
        X[rng.random(X.shape) < 0.1] = np.nan
        frame = pd.DataFrame(X, rows, columns)
        header, index = bool(rng.random() < 0.6), bool(rng.random() < 0.6)
        how = {
            "sep": str(rng.choice([",", ";", "\t", "|", " "])),
            "na_rep": str(rng.choice(["NA", ".", "?", "-", "null"])),
        }
        label = str(rng.choice(["", "id", "sample", "x"]))
        try:
            found = sf.read_table(file(frame.to_csv(header=header, index=index, index_label=label, **how)))
        except AmbiguousTableError:
            answers.append("asked")
            continue
        answers.append("read")
        np.testing.assert_allclose(found.to_numpy(), X)
        assert [str(name) for name in found.columns] == [str(c) for c in (columns if header else range(p))]
        assert [str(name) for name in found.index] == [str(r) for r in (rows if index else range(n))]
    assert answers.count("read") > 30


def test_whole_numbers_that_repeat_are_data(file) -> None:
    counts = "\n".join(f"g{i}," + ",".join(str(v) for v in row) for i, row in enumerate([[0, 0, 3], [1, 0, 2]]))
    assert sf.read_table(file(counts)).shape == (2, 3)


def test_rows_called_genes_need_an_orientation(file) -> None:
    for title in ("gene_id", "Gene", "Hugo_Symbol", "probe set", "ENSEMBL"):
        path = file(lines(NUMBERS, rows=SAMPLES, columns=FEATURES, corner=title))
        with pytest.raises(AmbiguousTableError, match=r"Are the rows .* features or samples\? Pass transpose=True"):
            sf.read_table(path)
    assert sf.read_table(path, transpose=False).shape == (60, 40)
    turned = sf.read_table(path, transpose=True)
    assert turned.shape == (40, 60)
    assert list(turned.index) == FEATURES


@pytest.mark.parametrize(
    ("row", "asked"),
    [
        *[(name, True) for name in ("ENSG{:011d}", "TP{}", "AB{}_at", "gene {}")],
        *[(name, False) for name in ("subject {}", "P{:03d}", "sub-{:02d}", "Ann Smith {}", "{}")],
    ],
)
@pytest.mark.parametrize("corner", ["", "Unnamed: 0"])
def test_many_more_rows_of_text_than_columns_are_asked_about(file, row, asked, corner) -> None:
    names = [row.format(j + 1) for j in range(240)]
    path = file(lines(np.tile(NUMBERS[:, :12], (4, 1)), "\t", names, [f"S{i}" for i in range(12)], corner), "X.tsv")
    if not asked:
        assert sf.read_table(path).shape == (240, 12)
        return
    with pytest.raises(AmbiguousTableError, match=r"many more rows \(.*\) than columns \(S0, S1.*transpose=True if so"):
        sf.read_table(path)
    assert sf.read_table(path, transpose=True).shape == (12, 240)
    assert sf.read_table(path, transpose=False).shape == (240, 12)
    few = file(lines(NUMBERS, "\t", names[:60], FEATURES, corner), "Y.tsv")
    assert sf.read_table(few).shape == (60, 40)


# ---- names -----------------------------------------------------------------------------------------------------


def test_repeated_names_are_refused_not_renamed(file) -> None:
    with pytest.raises(ValueError, match=r"names must be unique; 'a' names 2 columns of X.csv \(1, 2\)"):
        sf.read_table(file("id,a,a\nx,1,2\ny,3,4\n"))
    with pytest.raises(ValueError, match=r"names must not repeat.*'x' more than once.*drop=\['id'\]"):
        sf.read_table(file("id,a,b\nx,1,2\nx,3,5\n"))
    many = "".join(f"s{j % 1500},{j}.5,2\n" for j in range(1501))
    with pytest.raises(ValueError, match="names must be unique; 's0' names 2 rows"):
        sf.read_table(file("name,a,b\n" + many))


def test_names_that_look_missing_are_names(file) -> None:
    frame = sf.read_table(file("id,NA,b\nNA,1,2\nnull,NA,4\n-,5,6\n007,7,8\nx,9,9\n"))
    assert list(frame.index) == ["NA", "null", "-", "007", "x"]
    assert list(frame.columns) == ["NA", "b"]
    assert frame.isna().to_numpy().sum() == 1


def test_names_empty_or_too_long_are_refused(file) -> None:
    with pytest.raises(ValueError, match=r"column 3 of X.csv has none; .*drop=\['3'\]"):
        sf.read_table(file("id,a,,c\nx,1,2,3\ny,3,4,5\n"))
    with pytest.raises(ValueError, match="at most 1000 characters; that of column 1"):
        sf.read_table(file(f"id,{'a' * 20_000},c\nx,1,2\ny,3,4\n"))


def test_quoted_names_may_hold_separators_quotes_and_line_ends(file) -> None:
    text = 'id,"a, b","say ""c"""\n"x;1",1,2\n"y\n2",3,4\n'
    frame = sf.read_table(file(text))
    assert list(frame.columns) == ["a, b", 'say "c"']
    assert list(frame.index) == ["x;1", "y\n2"]


def test_shown_names_hold_no_control_characters() -> None:
    assert shown("a\x1b[31mred\x07\n\u202eb") == "a\\x1b[31mred\\x07\\n\\u202eb"
    assert shown("é 日本") == "é 日本"
    assert len(shown("x" * 500)) == 60


# ---- missing, decimals, encodings ---------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["", ".", "?", "-", "NA", "null", "NaN", "nan", "N/A", "NULL"])
def test_spellings_of_missing(file, word) -> None:
    frame = sf.read_table(file(f"id,a,b\nx,{word},2.5\ny,3,{word}\nz,1,2\n"))
    np.testing.assert_array_equal(frame.to_numpy(), [[np.nan, 2.5], [3, np.nan], [1, 2]])


def test_a_spelling_of_ones_own(file) -> None:
    path = file("id,a,b\nx,-999,2.5\ny,3,-999.0\nz,miss,2\n")
    with pytest.raises(ValueError, match=r"line 4, column a of X.csv holds 'miss'; .*na=\['miss'\].*drop=\['a'\]"):
        sf.read_table(path)
    assert sf.read_table(path, na=["-999", "miss"]).isna().to_numpy().sum() == 3
    assert sf.read_table(path, drop="a", keep="-999").shape == (3, 1)


def test_decimal_commas(file) -> None:
    text = lines(NUMBERS, ";", SAMPLES, FEATURES).replace(".", ",")
    assert_whole(sf.read_table(file(text)), True, True)
    with pytest.raises(AmbiguousTableError, match="decimal=','"):
        sf.read_table(file("id;a;b\nx;1,234;2\ny;3,456;4\n"))
    assert sf.read_table(file("id;a;b\nx;1,234;2\ny;3,456;4\n"), decimal=",").iloc[0, 0] == 1.234
    assert sf.read_table(file("id;a;b\nx;0,234;2\ny;3,456;4\n")).iloc[1, 0] == 3.456


@pytest.mark.parametrize(
    "cells",
    [
        ["1,234.5", "2", "1,234,567", "-1,000.25"],
        ["1.234,5", "2", "1.234.567", "-1.000,25"],
        ["1 234,5", "2", "1 234 567", "-1 000,25"],
        ["1\u202f234.5", "2", "1\u00a0234\u202f567", "-1\u2009000.25"],
        ["1'234.5", "2", "1’234’567", "-1'000.25"],
    ],
)
@pytest.mark.parametrize("sep", [";", "\t", ","])
def test_thousands_are_found_where_there_is_no_doubt(cells, sep, file) -> None:
    one, two, three, four = (f'"{cell}"' if sep in cell else cell for cell in cells)
    frame = sf.read_table(file(f"id{sep}a{sep}b\nx{sep}{one}{sep}{two}\ny{sep}{three}{sep}{four}\nz{sep}{sep}7\n"))
    assert frame.to_numpy()[:2].tolist() == [[1234.5, 2.0], [1234567.0, -1000.25]]
    assert np.isnan(frame.iloc[2, 0])


def test_thousands_by_setting(file) -> None:
    text = "id;a;b\nx;1,234;2\ny;3,456;4.5\n"
    with pytest.raises(ValueError, match="'1,234'"):
        sf.read_table(file(text))
    assert sf.read_table(file(text), thousands=",").to_numpy().tolist() == [[1234.0, 2.0], [3456.0, 4.5]]
    with pytest.raises(AmbiguousTableError, match="thousands=','"):
        sf.read_table(file("id;a;b\nx;1,234;2\ny;3,456;4\n"))
    with pytest.raises(ValueError, match="thousands must be one of"):
        sf.read_table(file(text), thousands="x")
    with pytest.raises(ValueError, match="not the decimal sign"):
        sf.read_table(file(text), thousands=",", decimal=",")
    with pytest.raises(ValueError, match="12,34"):  # no group of three
        sf.read_table(file("id;a;b\nx;12,34;2\ny;3,456;4.5\n"), thousands=",")


def test_units_in_cells_are_named(file) -> None:
    with pytest.raises(ValueError, match=r"'5%'.*or write it as plain numbers"):
        sf.read_table(file("id,a,b\nx,5%,2\ny,6%,4\n"))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-8"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_byte_order_marks_and_line_ends(file, encoding, end) -> None:
    text = lines(NUMBERS, rows=SAMPLES, columns=FEATURES, corner="Größe").replace("\n", end)
    assert_whole(sf.read_table(file(text.encode(encoding))), True, True)


def test_other_encodings_are_asked_for(file) -> None:
    path = file("id,größe,b\nx,1,2\ny,3,4\n".encode("latin-1"))
    with pytest.raises(ValueError, match="encoding='cp1252'"):
        sf.read_table(path)
    assert list(sf.read_table(path, encoding="latin-1").columns) == ["größe", "b"]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed(file, pack) -> None:
    packed = pack(lines(NUMBERS, rows=SAMPLES, columns=FEATURES).encode())
    assert_whole(sf.read_table(file(packed, "X.csv.gz")), True, True)
    with pytest.raises(ValueError, match="a compressed file must be whole"):
        sf.read_table(file(packed[: len(packed) // 2], "X.csv.gz"))


def test_comments_blank_lines_and_separators_at_the_end(file) -> None:
    table = lines(NUMBERS, rows=SAMPLES, columns=FEATURES)
    assert_whole(sf.read_table(file("# made by X\n# 2024, here\n" + table.replace("\ns30", "\n\ns30"))), True, True)
    assert_whole(sf.read_table(file("#" + lines(NUMBERS, rows=SAMPLES, columns=FEATURES, corner="id"))), True, True)
    assert_whole(sf.read_table(file(table.replace("\n", ",\n"))), True, True)


# ---- what cannot be read --------------------------------------------------------------------------------------------


def test_a_file_cut_off_is_refused(file) -> None:
    text = lines(NUMBERS, rows=SAMPLES, columns=FEATURES)
    cut = text[: text.rindex(",")] + "\n"
    with pytest.raises(ValueError, match=r"line 61 of X.csv has 40, others have 41"):
        sf.read_table(file(cut))
    long = "id,a,b\n" + "".join(f"s{j},1.5,2\n" for j in range(3000)) + 'last,"1"\n'
    with pytest.raises(ValueError, match=r"line 3002 of X.csv has 2, others have 3"):
        sf.read_table(file(long))


def test_text_columns_are_named_with_the_remedy(file) -> None:
    path = file("5.1,3.5,setosa\n4.9,3.0,virginica\n4.7,3.2,setosa\n")
    with pytest.raises(ValueError, match=r"column 3 holds text \('setosa'\) in .*; pass drop=\['3'\]"):
        sf.read_table(path)
    assert sf.read_table(path, drop=["3"]).shape == (3, 2)
    path = file("kind,a,b\nred,1,2\nred,3,4\nblue,5,7\n")
    with pytest.raises(ValueError, match=r"column kind holds text \('red'\).*drop=\['kind'\]"):
        sf.read_table(path)
    assert list(sf.read_table(path, drop=["kind"]).columns) == ["a", "b"]
    named = sf.read_table(file("kind,id,a,b\nred,x,1,2\nred,y,3,4\n"), drop=["kind"])
    assert (list(named.index), list(named.columns)) == (["x", "y"], ["a", "b"])
    with pytest.raises(ValueError, match="drop must name columns"):
        sf.read_table(path, drop=["colour"])


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"1\n2\n3\n", "at least two columns"),
        (b"a,b,c\n", "must hold numbers"),
        (b"a\0b,c\n1,2\n", "known format"),
        (b"a,b\n1,2\n1,2,3\n4,5\n", "as many fields"),
        (b"PK\x03\x04aaaa", "archive"),
        (b"\x89HDF\r\n\x1a\n", "HDF5|whole"),
    ],
)
def test_hopeless_files(file, content, match) -> None:
    path = file(content)
    with pytest.raises(ValueError, match=match):
        sf.read_table(path)


def test_no_file_and_a_folder(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="data must be a file"):
        sf.read_table(tmp_path / "none.csv")
    with pytest.raises(ValueError, match="is a folder"):
        sf.read_table(tmp_path)


@pytest.mark.parametrize(
    "wrong", [{"sep": "ab"}, {"decimal": ";"}, {"header": "yes"}, {"na": [3]}, {"encoding": "klingon"}]
)
def test_wrong_settings(file, wrong) -> None:
    path = file("id,a,b\nx,1,2\n")
    with pytest.raises((ValueError, TypeError), match=f"{next(iter(wrong))} must be"):
        sf.read_table(path, **wrong)


# ---- binary formats ------------------------------------------------------------------------------------------------


FRAME = pd.DataFrame(NUMBERS, index=SAMPLES, columns=FEATURES)


def test_parquet_and_feather(tmp_path) -> None:
    FRAME.to_parquet(tmp_path / "a.parquet")
    assert_whole(sf.read_table(tmp_path / "a.parquet"), True, True)
    FRAME.reset_index(names="id").to_feather(tmp_path / "b.feather")
    assert_whole(sf.read_table(tmp_path / "b.feather"), True, True)
    FRAME.reset_index(drop=True).to_parquet(tmp_path / "c.parquet")
    assert_whole(sf.read_table(tmp_path / "c.parquet"), False, True)
    FRAME.assign(kind="x").to_parquet(tmp_path / "d.parquet")
    with pytest.raises(ValueError, match=r"drop=\['kind'\]"):
        sf.read_table(tmp_path / "d.parquet")
    assert_whole(sf.read_table(tmp_path / "d.parquet", drop="kind"), True, True)


def test_npy(tmp_path) -> None:
    np.save(tmp_path / "a.npy", NUMBERS)
    assert_whole(sf.read_table(tmp_path / "a.npy"), False, False)
    np.testing.assert_array_equal(sf.read_table(tmp_path / "a.npy", columns="2:5", drop="3"), NUMBERS[:, [1, 3, 4]])
    np.save(tmp_path / "b.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(ValueError, match="must hold numbers"):
        sf.read_table(tmp_path / "b.npy")


def test_rds(tmp_path) -> None:
    import rdata

    rdata.write_rds(tmp_path / "a.rds", NUMBERS)
    assert_whole(sf.read_table(tmp_path / "a.rds"), False, False)
    (tmp_path / "b.rds").write_bytes(gzip.compress(as_rds(NUMBERS, SAMPLES, FEATURES)))
    assert_whole(sf.read_table(tmp_path / "b.rds"), True, True)


@pytest.mark.parametrize("layout", ["dense", "csr", "csc"])
def test_h5ad(tmp_path, layout) -> None:
    import h5py
    from scipy import sparse

    values = np.where(NUMBERS > 0, NUMBERS, 0.0)
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        if layout == "dense":
            file["X"] = values
        else:
            matrix = sparse.csr_matrix(values) if layout == "csr" else sparse.csc_matrix(values)
            group = file.create_group("X")
            group.attrs.update({"encoding-type": f"{layout}_matrix", "shape": values.shape})
            for name in ("data", "indices", "indptr"):
                group[name] = getattr(matrix, name)
        for part, names in (("obs", SAMPLES), ("var", FEATURES)):
            file.create_group(part).attrs["_index"] = "_index"
            file[part]["_index"] = np.array(names, dtype=h5py.string_dtype())
    frame = sf.read_table(tmp_path / "a.h5ad")
    np.testing.assert_array_equal(frame.to_numpy(), values)
    assert (list(frame.index), list(frame.columns)) == (SAMPLES, FEATURES)


def test_xlsx(tmp_path) -> None:
    FRAME.to_excel(tmp_path / "a.xlsx")
    np.testing.assert_allclose(sf.read_table(tmp_path / "a.xlsx"), NUMBERS)
    assert list(sf.read_table(tmp_path / "a.xlsx").index) == SAMPLES


def test_an_absent_library_is_named_with_the_command(tmp_path, monkeypatch) -> None:
    FRAME.to_parquet(tmp_path / "a.parquet")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r'needs pyarrow.*pip install "sparsefactor\[files\]"'):
        sf.read_table(tmp_path / "a.parquet")


# ---- the rest ----------------------------------------------------------------------------------------------------


def test_what_was_read_can_be_said(file) -> None:
    table = read(file("id,a,b\nx,NA,2.5\ny,3,1\n"), Choices(transpose=True))
    assert table.facts() == {
        "file": str(table.path),
        "format": "comma-separated text",
        "n_samples": 2,
        "n_features": 2,
        "samples_are": "columns",
        "sample_names": True,
        "feature_names": True,
        "index": "id",
        "missing": 1,
        "missing_share": 0.25,
        "notes": [],
    }


def test_thousands_of_columns(tmp_path) -> None:
    wide = RNG.normal(size=(30, 5000)).round(3)
    with (tmp_path / "wide.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["", *(f"f{i}" for i in range(5000))])
        writer.writerows([f"s{j}", *row] for j, row in enumerate(wide.tolist()))
    frame = sf.read_table(tmp_path / "wide.csv")
    np.testing.assert_array_equal(frame.to_numpy(), wide)


def test_a_frame_that_was_read_can_be_fitted(file) -> None:
    p = sf.fit_vi(sf.read_table(file(lines(NUMBERS))), sf.Prior(n_factors=2, inclusion=0.3), n_trials=1)
    assert p.loadings_mean.shape == (40, 2)
