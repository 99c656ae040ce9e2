"""What became of gene sets that a fit took as its prior."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ..posterior import MCMCPosterior, VIPosterior


def confirm(p: VIPosterior | MCMCPosterior, annotation: pd.DataFrame, fdr: float = 0.05) -> pd.DataFrame:
    """Which gene sets the data confirmed, extended or emptied, and which features they added or dropped.

    Parameters
    ----------
    p : posterior
        Of a fit with `Prior(inclusion=annotation)`.
    annotation : pandas.DataFrame
        The frame that `annotate` returned.
    fdr : float
        False discovery rate at which a feature counts as one of the factor's.

    Returns
    -------
    pandas.DataFrame
        A row per factor, strongest first: factor (from 1), set, verdict, size (features of the set), kept, added and
        dropped (how many), and added_features and dropped_features (lists, surest first). The verdict is "emptied"
        if no feature of the set is found, "extended" if more features are added than false discoveries explain, and
        else "confirmed"; factors without a set are "free".

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=60, inclusion=[0.4], snr=4, seed=0)
    >>> genes = [i for i in range(40) if sim.inclusion[i, 0]]
    >>> annotation = sf.annotate(range(40), {"set": genes})
    >>> p = sf.fit_vi(sim.X, sf.Prior(inclusion=annotation), n_trials=2)
    >>> sf.confirm(p, annotation).verdict[0]
    'confirmed'
    """
    names = set_of_factors(p, annotation)
    found = p.discoveries(fdr)
    prior, empty = annotation.to_numpy(), p.empty
    features = np.asarray([str(name) for name in p.feature_names])
    lines = []
    for k, name in enumerate(names):
        column = prior[:, annotation.columns.get_loc(name)]
        inside = column > column.min()  # of a free factor, nothing
        chosen = [] if empty[k] else [str(name) for name in found.loc[found["factor"] == k + 1, "feature"]]
        members = set(features[inside])
        added = [feature for feature in chosen if feature not in members]
        kept = len(chosen) - len(added)
        weakest = np.argsort(p.inclusion_prob[:, k], kind="stable")
        dropped = [str(features[i]) for i in weakest if inside[i] and features[i] not in set(chosen)]
        verdict = "confirmed"
        if not members:
            verdict = "free"
        elif not kept:
            verdict = "emptied"
        elif len(added) > fdr * len(chosen):
            verdict = "extended"
        lines.append(
            {
                "factor": k + 1,
                "set": name,
                "verdict": verdict,
                "size": len(members),
                "kept": kept,
                "added": len(added),
                "dropped": len(dropped),
                "added_features": added,
                "dropped_features": dropped,
            }
        )
    return pd.DataFrame(lines)


def set_of_factors(p: VIPosterior | MCMCPosterior, annotation: pd.DataFrame) -> list[str]:
    """The name of the set that each factor stands for: factors are ordered by strength, and take their prior along."""
    own, given = np.asarray(p.prior.inclusion_matrix()), annotation.to_numpy(dtype=np.float64)
    if own.shape != given.shape or [str(n) for n in annotation.index] != [str(n) for n in p.feature_names]:
        raise ValueError(
            f"annotation must be the one of the fit, of {len(p.feature_names)} features and {p.n_factors} factors; "
            f"got {given.shape[0]} and {given.shape[1]}, or other names; pass what Prior(inclusion=...) was given"
        )
    free = list(range(given.shape[1]))
    names = []
    for column in own.T:
        same = [k for k in free if np.array_equal(given[:, k], column)]
        if not same:
            raise ValueError(
                "annotation must be the one of the fit; a factor has prior inclusions that none of its columns has; "
                "pass what Prior(inclusion=...) was given"
            )
        free.remove(same[0])
        names.append(str(annotation.columns[same[0]]))
    return names
