"""Tables inside the package: their shapes, what is known of them, their licences, and their place in the wheel."""

import subprocess
import sys
import zipfile
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

import sparsefactor as sf

ROOT = Path(__file__).resolve().parents[1]
LOADERS = {name.removeprefix("load_"): getattr(sf.datasets, name) for name in sf.datasets.__all__}
SHAPES = {"abilities": (301, 24, 0), "proteins": (333, 124, 0), "process": (176, 57, 106)}  # samples, features, missing


@pytest.mark.parametrize("name", SHAPES)
def test_a_table_is_numbers_with_names_and_a_licence(name) -> None:
    X, about = LOADERS[name](metadata=True)
    assert (*X.shape, int(X.isna().sum().sum())) == SHAPES[name]
    assert set(X.dtypes.map(str)) == {"float64"}
    assert X.index.is_unique
    assert X.columns.is_unique
    assert X.index.equals(about.index)
    assert not set(X.columns) & set(about.columns)
    assert X.equals(LOADERS[name]())
    assert X.attrs["license"]
    assert X.attrs["source"]
    assert set(X.attrs.get("scales", X.columns)) == set(X.columns)
    assert "Licence: " in LOADERS[name].__doc__


def test_every_table_has_a_loader_and_its_licence() -> None:
    folder = files("sparsefactor.datasets")
    names = {path.name.partition(".")[0] for path in folder.iterdir() if path.name.endswith(".csv.gz")}
    assert names == set(SHAPES) == set(LOADERS)
    licences = folder.joinpath("LICENSES.md").read_text()
    assert all(f"`{name}.csv.gz`" in licences for name in names)


def test_values_are_those_of_the_source() -> None:
    X, about = sf.datasets.load_abilities(metadata=True)
    assert X.loc["P001", ["visual", "cubes", "arithmet"]].tolist() == [20, 31, 24]
    assert about.loc["P001"].tolist() == ["Pasteur", "Male", 7, 13, 1]
    assert about["school"].value_counts().to_dict() == {"Pasteur": 156, "Grant-White": 145}
    assert sf.datasets.load_proteins().loc["S001", "AXL"] == pytest.approx(1.0984)
    process, about = sf.datasets.load_process(metadata=True)
    assert process.loc["run 1", "material_01"] == 6.25
    assert about.loc["run 1", "yield"] == 38.0
    assert process.isna().any().sum() == 28


def test_tests_of_one_ability_correlate() -> None:
    X = sf.datasets.load_abilities()
    R, scale = np.corrcoef(X.to_numpy().T), np.array([X.attrs["scales"][test] for test in X.columns])
    same = scale[:, None] == scale
    assert R[same & ~np.eye(len(R), dtype=bool)].mean() > R[~same].mean() + 0.1


@pytest.mark.slow
def test_the_wheel_holds_the_tables(tmp_path) -> None:
    code = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for name in (*(f"{table}.csv.gz" for table in SHAPES), "LICENSES.md"):
        assert f"sparsefactor/datasets/{name}" in names
