"""Tables that were made to do harm: each ends in our own error, within little memory, and nothing outside is read."""

import gzip
import os
import re
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import h5py
import numpy as np
import openpyxl
import pandas as pd
import pytest
from tests.helpers.rds import as_rds

import sparsefactor as sf
from sparsefactor.reading import AmbiguousTableError

ROOM = 500_000_000  # bytes that a reader may take beside what Python and its libraries have
READ = """
import importlib, resource, sys
import sparsefactor as sf
path, room, *modules = sys.argv[1:]
for name in ("pandas", "scipy.sparse", *modules):
    importlib.import_module(name)
pages = int(open("/proc/self/statm").read().split()[0])
most = pages * resource.getpagesize() + int(room)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
try:
    sf.read_table(path)
except ValueError as problem:
    sys.exit(f"refused: {problem}")
"""


def refused_in_little_memory(path: Path, *modules: str) -> str:
    """What read_table says of a file, in a process that has little memory."""
    command = [sys.executable, "-c", READ, str(path), str(ROOM), *modules]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, f"exit code {done.returncode}: {done.stderr[-500:]}"
    assert done.stderr.startswith("refused: "), done.stderr[-500:]
    return done.stderr


# ---- .h5ad ----------------------------------------------------------------------------------------------------------


def write_names(file: h5py.File, n: int, p: int) -> None:
    for part, size in (("obs", n), ("var", p)):
        file.create_group(part).attrs["_index"] = "_index"
        file[part]["_index"] = np.array([f"{part} {i}" for i in range(size)], dtype=h5py.string_dtype())


def write_sparse(path: Path, data, indices, indptr, shape=(3, 3), kind="csr_matrix") -> Path:
    with h5py.File(path, "w") as file:
        X = file.create_group("X")
        X.attrs["encoding-type"] = kind
        if shape is not None:
            X.attrs["shape"] = shape
        for name, values in (("data", data), ("indices", indices), ("indptr", indptr)):
            if values is not None:
                X[name] = values
        write_names(file, 3, 3)
    return path


ONES = np.ones(3)


def test_indices_outside_the_shape_do_not_end_the_process(tmp_path) -> None:
    path = write_sparse(tmp_path / "a.h5ad", ONES, np.array([0, 99_999_999, -7]), np.arange(4))
    assert "must lie inside its shape" in refused_in_little_memory(path, "h5py")


BAD_SPARSE = {
    "an index beyond": {"indices": [0, 3, 1]},
    "a negative index": {"indices": [0, -1, 1]},
    "indices that are not whole": {"indices": [0.0, 1.0, 2.0]},
    "fewer indices than data": {"indices": [0, 1]},
    "no indices": {"indices": None},
    "indices of two dimensions": {"indices": [[0, 1, 2]]},
    "indptr that falls": {"indptr": [0, 3, 1, 3]},
    "indptr beyond the data": {"indptr": [0, 1, 2, 10**9]},
    "indptr from below zero": {"indptr": [-5, 1, 2, 3]},
    "indptr too short": {"indptr": [0, 1, 3]},
    "no indptr": {"indptr": None},
    "data that are text": {"data": np.array([b"a", b"b", b"c"])},
    "no shape": {"shape": None},
    "a negative shape": {"shape": (3, -3)},
    "a shape of one number": {"shape": 3},
    "a shape of text": {"shape": "3 x 3"},
    "an unknown layout": {"kind": "coo_matrix"},
}


@pytest.mark.parametrize("layout", ["csr_matrix", "csc_matrix"])
@pytest.mark.parametrize("case", BAD_SPARSE)
def test_sparse_matrices_are_checked_before_they_are_built(tmp_path, case, layout) -> None:
    good = {"data": ONES, "indices": [0, 1, 2], "indptr": [0, 1, 2, 3], "kind": layout}
    np.testing.assert_array_equal(sf.read_table(write_sparse(tmp_path / "good.h5ad", **good)), np.eye(3))
    with pytest.raises(ValueError, match=r"must .*bad\.h5ad.*;"):
        sf.read_table(write_sparse(tmp_path / "bad.h5ad", **{**good, **BAD_SPARSE[case]}))


def test_nothing_outside_an_hdf5_file_is_read(tmp_path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(np.arange(9.0).tobytes())
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["X"] = np.eye(3)
        other["names"] = np.array(["a", "b", "c"], dtype=h5py.string_dtype())
        write_names(other, 3, 3)

    def external(file) -> None:
        file["X"] = h5py.ExternalLink("other.h5", "/X")

    def raw(file) -> None:
        file.create_dataset("X", (3, 3), float, external=[(str(secret), 0, h5py.h5f.UNLIMITED)])

    def virtual(file) -> None:
        layout = h5py.VirtualLayout((3, 3), float)
        layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "X", shape=(3, 3))
        file.create_virtual_dataset("X", layout)

    def soft(file) -> None:
        file["elsewhere"] = h5py.ExternalLink("other.h5", "/")
        file["X"] = h5py.SoftLink("/elsewhere/X")

    def of_names(file) -> None:
        file["X"] = np.eye(3)
        del file["obs"]["_index"]
        file["obs"]["_index"] = h5py.ExternalLink("../other.h5", "/names")

    def by_path(file) -> None:
        file["X"] = np.eye(3)
        file["elsewhere"] = h5py.ExternalLink("other.h5", "/")
        file["obs"].attrs["_index"] = "/elsewhere/names"

    for number, write in enumerate((external, raw, virtual, soft, of_names, by_path)):
        path = tmp_path / f"{number}.h5ad"
        with h5py.File(path, "w") as file:
            write_names(file, 3, 3)
            write(file)
        with pytest.raises(ValueError, match=r"must .*(itself|column of text).*;"):
            sf.read_table(path)


@pytest.mark.parametrize("part", ["X", "obs", "var"])
@pytest.mark.parametrize("instead", ["nothing", "a number", "text", "a compound", "references", "three dimensions"])
def test_hdf5_files_of_another_kind(tmp_path, part, instead) -> None:
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        file["X"] = np.eye(3)
        write_names(file, 3, 3)
        reference = file["X"].ref
        del file[part]
        match instead:
            case "a number":
                file[part] = 3.0
            case "text":
                file[part] = np.array([["a"] * 3] * 3, dtype=h5py.string_dtype())
            case "a compound":
                file[part] = np.zeros((3, 3), dtype=[("a", float), ("b", "S3")])
            case "references":
                file.create_dataset(part, data=[[reference] * 3] * 3, dtype=h5py.ref_dtype)
            case "three dimensions":
                file[part] = np.zeros((3, 3, 3))
    with pytest.raises(ValueError, match=r"must .*a\.h5ad.*;"):
        sf.read_table(tmp_path / "a.h5ad")


@pytest.mark.parametrize("layout", ["dense", "csr", "names", "chunk"])
def test_an_hdf5_file_says_more_than_it_holds(tmp_path, layout) -> None:
    """Datasets without chunks read as their fill value, and take no room in the file."""
    path = tmp_path / "a.h5ad"
    with h5py.File(path, "w") as file:
        if layout == "csr":
            X = file.create_group("X")
            X.attrs.update({"encoding-type": "csr_matrix", "shape": (20_000, 20_000)})
            X.update({"data": ONES, "indices": [0, 1, 2], "indptr": np.minimum(np.arange(20_001), 3)})
        elif layout == "chunk":
            file.create_dataset("X", (3, 3), "f8", chunks=(20_000, 20_000), maxshape=(None, None), compression="gzip")
        else:
            shape = (20_000, 20_000) if layout == "dense" else (3, 3)
            file.create_dataset("X", shape, "f4", chunks=(1000, 1000) if layout == "dense" else None)
        write_names(file, 3, 3)
        if layout == "names":
            del file["obs"]["_index"]
            file["obs"].create_dataset("_index", (10**9,), h5py.string_dtype(), chunks=(10**6,))
    assert path.stat().st_size < 10_000_000
    assert "max_bytes=" in refused_in_little_memory(path, "h5py")


# ---- .xlsx ----------------------------------------------------------------------------------------------------------


def test_one_cell_in_the_last_corner_of_a_sheet(tmp_path) -> None:
    book = openpyxl.Workbook()
    book.active["A1"] = 1.0
    book.active["XFD1048576"] = 1.0
    book.save(tmp_path / "a.xlsx")
    assert "1048576 rows and 16384 columns" in refused_in_little_memory(tmp_path / "a.xlsx", "openpyxl")


def repacked(path: Path, **members: bytes) -> Path:
    """An .xlsx file with other members, compressed."""
    new = path.with_name(f"new-{path.name}")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in old.namelist():
            archive.writestr(name, members.get(Path(name).stem, old.read(name)))
    return new


@pytest.fixture
def workbook(tmp_path) -> Path:
    pd.DataFrame(np.eye(3), list("abc"), list("xyz")).to_excel(tmp_path / "a.xlsx")
    return tmp_path / "a.xlsx"


SHEET = b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>%s</sheetData></worksheet>'


@pytest.mark.slow
def test_a_workbook_that_unpacks_to_gigabytes(workbook) -> None:
    for members in (
        {"sheet1": SHEET % (b'<row r="1">' + b"<c/>" * 30_000_000 + b"</row>")},
        {"sheet1": SHEET % (b"<row/>" * 400_000_000)},
        {"styles": b"<styleSheet>" + b"<xf/>" * 30_000_000 + b"</styleSheet>"},
    ):
        path = repacked(workbook, **members)
        assert path.stat().st_size < 10_000_000
        assert "max_bytes=" in refused_in_little_memory(path, "openpyxl")


def test_rows_far_below_are_not_made_up(workbook) -> None:
    path = repacked(workbook, sheet1=SHEET % b'<row r="1"><c r="A1"><v>1</v></c></row><row r="999999999999"/>')
    assert "at most 1048576 rows" in refused_in_little_memory(path, "openpyxl")


@pytest.mark.parametrize("junk", ["zip", "archive", "sheet", "workbook", "no sheet"])
def test_junk_workbooks(workbook, tmp_path, junk) -> None:
    path = tmp_path / "junk.xlsx"
    match junk:
        case "zip":
            path.write_bytes(b"PK\x03\x04" + bytes(range(256)) * 10)
        case "archive":
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("a.txt", "a")
        case "sheet" | "workbook":
            stem = {"sheet": "sheet1", "workbook": "workbook"}[junk]
            repacked(workbook, **{stem: b"<worksheet><c>"}).rename(path)
        case "no sheet":
            book = openpyxl.Workbook()
            book.create_chartsheet()
            book.remove(book.active)
            book.save(path)
    with pytest.raises(ValueError, match=r"an \.xlsx file must .*junk\.xlsx.*;"):
        sf.read_table(path)


def test_a_sheet_is_not_split_at_semicolons(tmp_path) -> None:
    frame = pd.DataFrame([[1.5, 2.5], [3.5, 4.5]], index=["a;1", "b;2"], columns=["x;y", "z"])
    frame.to_excel(tmp_path / "a.xlsx")
    pd.testing.assert_frame_equal(sf.read_table(tmp_path / "a.xlsx"), frame)


def test_short_rows_of_a_sheet_end_in_missing_entries(tmp_path) -> None:
    book = openpyxl.Workbook()
    for row in (["id", "x", "y"], ["a", 1.5, 2], ["b", 3]):
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    np.testing.assert_array_equal(sf.read_table(tmp_path / "a.xlsx"), [[1.5, 2.0], [3.0, np.nan]])


# ---- other formats -------------------------------------------------------------------------------------------------


JUNK = np.random.default_rng(0).bytes(5000)


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("a.rds", b"X\n"),
        ("a.rds", b"X\n\x00\x00\x00\x03"),
        ("a.rds", b"A\n3\n"),
        ("a.rds", b"B\n\x03\x00\x00\x00"),
        ("a.parquet", b"PAR1"),
        ("a.feather", b"ARROW1"),
        ("a.feather", b"FEA1"),
        ("a.npy", b"\x93NUMPY"),
        ("a.npy", b"\x93NUMPY\x01\x00"),
        ("a.h5ad", b"\x89HDF\r\n\x1a\n"),
        ("a.csv.gz", b"\x1f\x8b\x08\x00\x00\x00\x00\x00"),
        ("a.csv.xz", b"\xfd7zXZ\x00"),
        ("a.csv.bz2", b"BZh9"),
    ],
)
def test_junk_behind_the_first_bytes(tmp_path, name, start) -> None:
    path = tmp_path / name
    for junk in (JUNK, b"", b"\0" * 100):
        path.write_bytes(start + junk)
        with pytest.raises(ValueError, match=r"must .*a\..*;"):
            sf.read_table(path)


def test_files_cut_in_the_middle(tmp_path) -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 5)), columns=list("abcde"))
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_feather(tmp_path / "a.feather")
    frame.to_excel(tmp_path / "a.xlsx", index=False)
    np.save(tmp_path / "a.npy", frame.to_numpy())
    (tmp_path / "a.rds").write_bytes(as_rds(frame.to_numpy(), [f"s{i}" for i in range(50)], list("abcde")))
    for path in sorted(tmp_path.iterdir()):
        whole = path.read_bytes()
        for part in (0.3, 0.6, 0.95):
            path.write_bytes(whole[: int(part * len(whole))])
            with pytest.raises(ValueError, match=rf"must .*{path.name}.*;"):
                sf.read_table(path)


def test_a_parquet_file_of_many_rows_in_little_room(tmp_path) -> None:
    frame = pd.DataFrame({name: np.zeros(2_000_000) for name in "ab"})
    frame.to_parquet(tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < 100_000
    with pytest.raises(ValueError, match="max_bytes=32000000"):
        sf.read_table(tmp_path / "a.parquet", max_bytes=10_000_000)
    assert sf.read_table(tmp_path / "a.parquet", max_bytes=40_000_000).shape == (2_000_000, 2)
    frame.to_feather(tmp_path / "a.feather", compression="zstd")
    with pytest.raises(ValueError, match="max_bytes="):
        sf.read_table(tmp_path / "a.feather", max_bytes=10_000_000)


def test_a_parquet_file_that_repeats_one_long_name(tmp_path) -> None:
    """A dictionary holds the name once; without it, it would take 20 GB."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = pa.DictionaryArray.from_arrays(np.zeros(20_000, np.int32), ["x" * 1_000_000])
    pq.write_table(pa.table({"id": names, "a": np.arange(20_000.0), "b": np.ones(20_000)}), tmp_path / "a.parquet")
    assert "names" in refused_in_little_memory(tmp_path / "a.parquet", "pyarrow.parquet")


def test_lengths_in_rds_files_are_not_believed(tmp_path) -> None:
    def pack(*numbers: int) -> bytes:
        return struct.pack(f">{len(numbers)}i", *numbers)

    head = b"X\n" + pack(2, 0x30500, 0x20300)
    symbol = pack(1, 9 | 1 << 18, 14) + b"compact_intseq"
    sequence = pack(238, 2) + symbol + pack(254) + pack(14, 3) + struct.pack(">3d", 2e9, 1, 1) + pack(254)
    for content in (
        head + pack(14, 2**31 - 1),  # numbers that are not there
        head + pack(19, 2**31 - 1),  # a list of nothing
        head + sequence,  # 1:2000000000, in R's own short form
        head + pack(21, 2**31 - 1),  # code, with room for as many references
        gzip.compress(head + pack(19, 20_000_000) + pack(254) * 20_000_000),
    ):
        (tmp_path / "a.rds").write_bytes(content)
        assert "a.rds" in refused_in_little_memory(tmp_path / "a.rds", "rdata")


def test_a_header_of_npy_is_not_believed(tmp_path) -> None:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 1000000), }"
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + b"\0" * 80)
    assert "must hold numbers" in refused_in_little_memory(tmp_path / "a.npy")


@pytest.mark.parametrize("kind", ["a pipe", "/dev/zero", "/dev/null"])
def test_what_is_no_regular_file_is_not_opened(tmp_path, kind) -> None:
    path = Path(kind)
    if kind == "a pipe":
        path = tmp_path / "X.parquet"
        os.mkfifo(path)
    with pytest.raises(ValueError, match=r"data must be a regular file; .* is not"):
        sf.read_table(path)
    if kind == "a pipe":
        with pytest.raises(ValueError, match="must be a zarr store or"):
            sf.fit_vi(path, n_factors=1)


# ---- text -----------------------------------------------------------------------------------------------------------


def test_text_that_unpacks_to_more_than_is_allowed(tmp_path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"a,b,c\n" + b"0,0,0\n" * 2_000_000, 1))
    with pytest.raises(ValueError, match=r"a\.csv\.gz unpacks to more than 10,000,000 bytes.*max_bytes="):
        sf.read_table(path, max_bytes=10_000_000)
    with pytest.raises(ValueError, match="max_bytes=48000024"):  # 3 numbers a line
        sf.read_table(path, max_bytes=20_000_000)
    assert sf.read_table(path, max_bytes=48_000_024).shape == (2_000_000, 3)


def test_a_quote_that_never_ends(tmp_path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b'"a,b,c\n' + b"0,0,0\n" * 20_000_000, 1))
    assert "quote" in refused_in_little_memory(path)


def test_one_endless_line(tmp_path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"12," * 30_000_000, 1))
    assert "line" in refused_in_little_memory(path)


def test_millions_of_columns(tmp_path) -> None:
    """A column takes room of its own in pandas, however few lines there are."""
    path = tmp_path / "a.csv"
    path.write_bytes((b"0," * 3_000_000 + b"0\n") * 3)
    assert "3000001 columns" in refused_in_little_memory(path)


@pytest.mark.slow
def test_two_megabytes_that_unpack_to_two_gigabytes(tmp_path) -> None:
    path = tmp_path / "a.csv.gz"
    with gzip.open(path, "wb", 9) as file:
        file.write(b"a,b,c,d\n")
        for _ in range(1900):
            file.write(b"0,0,0,0\n" * 125_000)
    assert path.stat().st_size < 6_000_000
    assert "max_bytes=" in refused_in_little_memory(path)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "2 GB", True])
def test_a_limit_is_a_number_of_bytes(tmp_path, wrong) -> None:
    (tmp_path / "a.csv").write_text("id,a,b\nx,1,2\n")
    with pytest.raises((ValueError, TypeError), match="max_bytes must be"):
        sf.read_table(tmp_path / "a.csv", max_bytes=wrong)


def semicolons(n: int = 29, cell: str = "k.A.") -> str:
    """Numbers with decimal points or none, a last column with decimal commas, one of text and a spelling of missing."""
    head = ";".join(["person", *(f"item {i}" for i in range(n - 1)), "grade"])
    body = [
        ";".join([f"p{j}", *(str((i * j) % 7) for i in range(n - 2)), cell if j == 3 else "1", f"{j},5"])
        for j in range(9)
    ]
    return "\n".join([head, *body]) + "\n"


def test_a_header_decides_the_separator(tmp_path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(semicolons())
    with pytest.raises(ValueError, match=re.escape("na=['k.A.']")):
        sf.read_table(path)
    assert sf.read_table(path, na="k.A.").shape == (9, 29)
    path.write_text(semicolons() + "p9;1,5\n")
    with pytest.raises(ValueError, match=r"line 11 of a\.csv has 2, others have 30"):
        sf.read_table(path)


def test_a_separator_inside_names_is_asked_about(tmp_path) -> None:
    path = tmp_path / "a.csv"
    for other in (";", "\t", "|"):
        path.write_text("".join(f"{j}{other}x{other}{j},5\n" for j in range(5)))
        with pytest.raises(AmbiguousTableError, match=re.escape(f"Is the separator {other!r}? Pass sep={other!r}")):
            sf.read_table(path)
        path.write_text(f"id,a{other}b,c\nx,1,2\ny,3,4\n")
        with pytest.raises(AmbiguousTableError, match=re.escape(f"sep={other!r}")):
            sf.read_table(path)
        assert list(sf.read_table(path, sep=",").columns) == [f"a{other}b", "c"]
        path.write_text(f"id,a,b\nx{other}1,1,2\ny{other}2,3,4\n")  # its header leaves no doubt
        assert list(sf.read_table(path).index) == [f"x{other}1", f"y{other}2"]
        path.write_text(f'id,"a{other}b",c\nx,1,2\ny,3,4\n')  # nor do quotes
        assert sf.read_table(path).shape == (2, 2)


def test_one_feature_is_asked_about(tmp_path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,a\nx,1.5\ny,2\n")
    with pytest.raises(AmbiguousTableError, match=re.escape("Is the separator ','? Pass sep=','")):
        sf.read_table(path)
    assert sf.read_table(path, sep=",").shape == (2, 1)
