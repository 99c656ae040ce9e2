"""Small real tables that come with the package, read from files inside it.

Each function returns a DataFrame of samples by features. Its `attrs` hold "description", "source", "license" and, where
groups of features are known beforehand, "scales": a dict from a feature to its group. LICENSES.md beside this file has
the licences of all tables.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Literal, overload

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["load_abilities", "load_process", "load_proteins"]

ABILITIES = {
    "spatial": "visual cubes paper flags",
    "verbal": "general paragrap sentence wordc wordm",
    "speed": "addition code counting straight",
    "memory": "wordr numberr figurer object numberf figurew",
    "reasoning": "deduct numeric problemr series arithmet",
}


@overload
def load_abilities(metadata: Literal[False] = False) -> pd.DataFrame: ...
@overload
def load_abilities(metadata: Literal[True]) -> tuple[pd.DataFrame, pd.DataFrame]: ...
def load_abilities(metadata: bool = False) -> pd.DataFrame | tuple[pd.DataFrame, pd.DataFrame]:
    """Scores of 301 pupils on 24 ability tests (Holzinger and Swineford, 1939).

    The tests were chosen to measure five abilities: spatial, verbal, speed, memory and reasoning. This is the classic
    table of factor analysis.

    Parameters
    ----------
    metadata : bool
        Also return school, gender, grade and age of the pupils.

    Returns
    -------
    DataFrame, or a tuple of two
        301 pupils by 24 tests, complete. `attrs["scales"]` names the ability that each test was chosen for.

    Notes
    -----
    Licence: measurements published in 1939, redistributed by OpenMx under the Apache License 2.0.

    K. J. Holzinger and F. Swineford (1939). A study in factor analysis: the stability of a bi-factor solution.
    Supplementary Educational Monographs 48, University of Chicago.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> X = sf.datasets.load_abilities()
    >>> X.shape, X.attrs["scales"]["visual"]
    ((301, 24), 'spatial')
    """
    return _load(
        "abilities",
        n_metadata=5,
        return_metadata=metadata,
        description="24 ability tests of 301 pupils",
        source="Holzinger and Swineford (1939), A study in factor analysis: the stability of a bi-factor solution",
        license="Apache-2.0 (as redistributed by OpenMx)",
        scales={test: ability for ability, tests in ABILITIES.items() for test in tests.split()},
    )


@overload
def load_proteins(metadata: Literal[False] = False) -> pd.DataFrame: ...
@overload
def load_proteins(metadata: Literal[True]) -> tuple[pd.DataFrame, pd.DataFrame]: ...
def load_proteins(metadata: bool = False) -> pd.DataFrame | tuple[pd.DataFrame, pd.DataFrame]:
    """Abundances of 124 proteins in the cerebrospinal fluid of 333 people (Craig-Schapiro et al., 2011).

    A table of the kind that genomics has: many correlated features, each on a scale of its own (pass `scale=True`), and
    known facts about the samples to compare the factors with.

    Parameters
    ----------
    metadata : bool
        Also return the diagnosis ("Impaired" or "Control"), age (transformed), sex, APOE genotype and the clinical
        markers tau, phosphorylated tau and amyloid beta 42.

    Returns
    -------
    DataFrame, or a tuple of two
        333 people by 124 proteins, complete, rounded to four decimals.

    Notes
    -----
    Licence: MIT, copyright of the modeldata authors; the article's data are CC BY 4.0.

    R. Craig-Schapiro et al. (2011). Multiplexed immunoassay panel identifies novel CSF biomarkers for Alzheimer's
    disease diagnosis and prognosis. PLoS ONE 6(4): e18850.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> X, people = sf.datasets.load_proteins(metadata=True)
    >>> X.shape, sorted(people["diagnosis"].unique())
    ((333, 124), ['Control', 'Impaired'])
    """
    return _load(
        "proteins",
        n_metadata=7,
        return_metadata=metadata,
        description="124 proteins in the cerebrospinal fluid of 333 people",
        source="Craig-Schapiro et al. (2011), PLoS ONE 6(4): e18850",
        license="MIT (R package modeldata); article CC BY 4.0",
    )


@overload
def load_process(metadata: Literal[False] = False) -> pd.DataFrame: ...
@overload
def load_process(metadata: Literal[True]) -> tuple[pd.DataFrame, pd.DataFrame]: ...
def load_process(metadata: bool = False) -> pd.DataFrame | tuple[pd.DataFrame, pd.DataFrame]:
    """Measurements of 176 runs of a chemical process, with missing values (Kuhn and Johnson, 2013).

    12 features describe the biological raw material and 45 the 27 steps of manufacturing. Their scales differ: pass
    `scale=True`.

    Parameters
    ----------
    metadata : bool
        Also return the yield of each run.

    Returns
    -------
    DataFrame, or a tuple of two
        176 runs by 57 measurements, of which 106 are missing. `attrs["scales"]` tells material from process.

    Notes
    -----
    Licence: MIT, copyright of the modeldata authors.

    M. Kuhn and K. Johnson (2013). Applied predictive modeling. Springer.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> X = sf.datasets.load_process()
    >>> X.shape, int(X.isna().sum().sum())
    ((176, 57), 106)
    """
    table = _load(
        "process",
        n_metadata=1,
        return_metadata=metadata,
        description="57 measurements of 176 runs of a chemical process, with missing values",
        source="Kuhn and Johnson (2013), Applied predictive modeling",
        license="MIT (R package modeldata)",
    )
    X = table[0] if isinstance(table, tuple) else table
    X.attrs["scales"] = {name: name.partition("_")[0] for name in X.columns}
    return table


def _load(
    name: str, *, n_metadata: int, return_metadata: bool, **attributes: str | dict[str, str]
) -> pd.DataFrame | tuple[pd.DataFrame, pd.DataFrame]:
    """Read a table whose first columns, after the names of the samples, are metadata."""
    import pandas as pd

    with files(__package__).joinpath(f"{name}.csv.gz").open("rb") as file:
        whole = pd.read_csv(file, index_col=0, compression="gzip")
    X, about = whole.iloc[:, n_metadata:].astype(float), whole.iloc[:, :n_metadata]
    X.attrs.update(attributes)
    return (X, about.copy()) if return_metadata else X
