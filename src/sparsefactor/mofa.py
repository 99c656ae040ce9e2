"""Results in the HDF5 format of MOFA2, which its R package (`load_model`) and mofax read.

Its Z are our activations and its W our loadings, both (n_factors, ...) on disk; data are centred and scaled as
they were fitted, with the means as intercepts. All samples are one group.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .atomic import replacing
from .errors import needs
from .names import shown
from .posterior import MCMCPosterior, VIPosterior
from .questions.samples import training_matrix

Array = NDArray[np.float64]

GROUP = "group1"  # of samples
VIEW = "view1"  # of all features, where the prior has no groups


def write_mofa(p: VIPosterior | MCMCPosterior, path: Path, X: Any = None) -> None:
    """See `Posterior.to_mofa_hdf5`."""
    try:
        import h5py
    except ImportError as problem:
        raise needs("writing MOFA2's format", "h5py", "files", problem) from problem
    views = views_of(p)
    factors = np.flatnonzero(~p.empty)
    if not len(factors):
        raise ValueError("a MOFA2 model needs a factor that is not empty; this result has none; fit other data")
    data = None if X is None else training_matrix(X, p.labels, "X", "pass the data of the fit")
    text = h5py.string_dtype(encoding="utf-8")
    with replacing(path) as temporary, h5py.File(temporary, "w", locking=False) as file:

        def write(name: str, values: Any) -> Any:
            array = np.asarray(values)
            if array.dtype.kind in "UO":
                return file.create_dataset(name, data=array.astype(object), dtype=text)
            packed = {"compression": "gzip"} if array.ndim > 1 else {}
            return file.create_dataset(name, data=array, **packed)

        write("groups/groups", [GROUP])
        write("views/views", list(views))
        write(f"samples/{GROUP}", unique_names(p.sample_names, "sample"))
        write(f"expectations/Z/{GROUP}", p.activations_mean[:, factors].T)
        names = unique_names(p.feature_names, "feature")
        for view, rows in views.items():
            write(f"features/{view}", names[rows])
            write(f"expectations/W/{view}", p.loadings_mean[np.ix_(rows, factors)].T)
            if data is not None:
                write(f"data/{view}/{GROUP}", ((data - p.labels.offset) / p.labels.scale)[:, rows])
                write(f"intercepts/{view}/{GROUP}", p.labels.offset[rows])
        by_factor, total = variance_by_view(p, views)
        write(f"variance_explained/r2_per_factor/{GROUP}", 100 * by_factor[:, factors])
        write(f"variance_explained/r2_total/{GROUP}", 100 * total)
        _write_options(write, p, len(views), len(factors))


def _write_options(write: Any, p: VIPosterior | MCMCPosterior, n_views: int, n_factors: int) -> None:
    """What MOFA2 keeps of its settings and training, as far as it has a counterpart here."""
    options = {
        "likelihoods": np.array(["gaussian"] * n_views, dtype="S"),
        "spikeslab_factors": np.bytes_("False"),
        "spikeslab_weights": np.bytes_("True"),
        "ard_factors": np.bytes_("False"),
        "ard_weights": np.bytes_("True"),
    }
    for name, value in options.items():
        last = write(f"model_options/{name}", value)
    last.attrs["names"] = np.array(list(options), dtype="S")
    settings = p.record.get("settings", {})
    numbers = {name: settings.get(name) for name in ("max_iter", "seed")}
    training = {"maxiter": numbers["max_iter"], "freqELBO": 1, "start_elbo": 1, "gpu_mode": 0, "stochastic": 0}
    training["seed"] = numbers["seed"]
    stored = write("training_opts", [float(v) if isinstance(v, int | float) else 0.0 for v in training.values()])
    stored.attrs["names"] = np.array(list(training), dtype="S")
    history = p.elbo_history if isinstance(p, VIPosterior) else {"elbo": [np.nan], "seconds": [0.0]}
    write("training_stats/elbo", np.asarray(history["elbo"], dtype=np.float64))
    write("training_stats/time", np.asarray(history["seconds"], dtype=np.float64))
    write("training_stats/number_factors", np.full(len(history["elbo"]), float(n_factors)))


def views_of(p: VIPosterior | MCMCPosterior) -> dict[str, NDArray[np.intp]]:
    """The features of each view."""
    group = p.fit_sums.group if p.fit_sums is not None and p.prior.grouped else None
    if group is None:
        return {VIEW: np.arange(len(p.feature_names))}
    # "/" parts folders in HDF5, and MOFA2 refuses it.
    return {str(name).replace("/", "-"): np.flatnonzero(group == v) for v, name in enumerate(p.prior.group_names)}


def variance_by_view(p: VIPosterior | MCMCPosterior, views: dict[str, NDArray[np.intp]]) -> tuple[Array, Array]:
    """(n_views, n_factors) and (n_views,) shares of the variance of each view."""
    sums = p.fit_sums
    assert sums is not None
    by_factor = p.variance_explained(by="group") if len(views) > 1 else p.variance_explained(by="factor")[None]
    rss = np.nan_to_num(1.0 - p.variance_explained(by="feature")) * sums.total
    total = [1.0 - rss[rows].sum() / max(sums.total[rows].sum(), np.finfo(float).tiny) for rows in views.values()]
    return np.nan_to_num(np.asarray(by_factor)), np.array(total)


def unique_names(names: NDArray[Any], what: str) -> NDArray[Any]:
    """Names as text; "sample1" and so on where there are none."""
    if names.dtype.kind in "iu":
        return np.array([f"{what}{n + 1}" for n in names])
    odd = [name for name in names if "\x00" in str(name)]
    if odd:
        raise ValueError(f"{what} names must not hold the character NUL; {shown(odd[0])!r} does; rename it")
    return names.astype(str)
