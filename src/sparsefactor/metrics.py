"""Errors against a truth, as the paper measures them, and the fill-in error (math.md, section 6)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .model import Prior
from .posterior import Posterior
from .questions.samples import training_matrix
from .relabel import assignment, match
from .simulate import Simulation

Array = NDArray[np.float64]
SHAPES = "pass (n_samples, n_features) arrays, or frames with names"


def score(p: Any, truth: Simulation) -> dict[str, float]:
    """Accuracy of Z, and RRMSE of loadings, activations and signal, after matching, signs and scaling.

    Each factor is scaled so that its activations have the truth's norm, and its loadings inversely. A factor of the
    truth without partner counts as zeros. A factor of p without partner counts in the signal only. A fit of centred
    data is compared with the truth's activations and signal less their means over samples.

    Parameters
    ----------
    p : posterior
        Or anything with loadings_mean, activations_mean, inclusion_prob and reconstruct().
    truth : Simulation

    Returns
    -------
    dict of str to float
        "z_accuracy", "rrmse_loadings", "rrmse_activations" and "rrmse_signal".

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.2], snr=25, seed=0)
    >>> sf.score(sf.fit_vi(sim.X, n_factors=2, n_trials=2), sim)["z_accuracy"] > 0.8
    True
    """
    matching = match(p, truth)
    loadings = matching.apply(p.loadings_mean)
    activations = matching.apply(p.activations_mean)
    true_activations, true_signal = truth.activations, truth.signal
    offset = np.asarray(getattr(getattr(p, "labels", None), "offset", 0.0))
    if offset.any():  # a centred fit knows nothing of the means
        true_activations, true_signal = (a - a.mean(axis=0) for a in (true_activations, true_signal))
    scale = _scale_to(activations, true_activations)
    included = matching.apply(_included(p.inclusion_prob), signed=False)
    return {
        "z_accuracy": float(np.mean(included == truth.inclusion)),
        "rrmse_loadings": _rrmse(loadings / scale, truth.loadings),
        "rrmse_activations": _rrmse(activations * scale, true_activations),
        "rrmse_signal": _rrmse(_predicted(p) - offset, true_signal),
    }


def confusion(p: Any, truth: Simulation) -> NDArray[np.intp]:
    """Counts of inclusions, right and wrong, after matching.

    Parameters
    ----------
    p : posterior
    truth : Simulation

    Returns
    -------
    array (2, 2) of int
        Rows the truth (out, in), columns the inferred (out, in).

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.2], snr=4, seed=0)
    >>> int(sf.confusion(sf.fit_vi(sim.X, n_factors=2, n_trials=2), sim).sum())
    80
    """
    included = match(p, truth).apply(_included(p.inclusion_prob), signed=False)
    pairs = 2 * truth.inclusion.astype(np.intp) + included
    return np.bincount(pairs.ravel(), minlength=4).reshape(2, 2)


def baseline(truth: Simulation, prior: Prior) -> dict[str, float]:
    """The score of the prior mean: rounded prior inclusion for Z, and zeros for all else.

    As a posterior is matched before it is scored, so the prior's factors are given their best order.

    Parameters
    ----------
    truth : Simulation
    prior : Prior

    Returns
    -------
    dict of str to float
        The names of `score`.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate_paper(snr=5, seed=0)
    >>> sf.baseline(sim, sf.Prior(inclusion=[0.1] * 5 + [0.9]))["rrmse_loadings"]
    1.0
    """
    probability = np.broadcast_to(prior.inclusion_matrix(), (len(truth.inclusion), prior.K))
    included = _included(probability)
    agree = np.stack([np.mean(included == column[:, None], axis=0) for column in truth.inclusion.T])
    empty = np.mean(~truth.inclusion, axis=0)
    rows, columns = assignment(empty[:, None] - agree)
    accuracy = empty.copy()
    accuracy[rows] = agree[rows, columns]
    return {
        "z_accuracy": float(accuracy.mean()),
        "rrmse_loadings": _rrmse(np.zeros_like(truth.loadings), truth.loadings),
        "rrmse_activations": _rrmse(np.zeros_like(truth.activations), truth.activations),
        "rrmse_signal": _rrmse(np.zeros_like(truth.signal), truth.signal),
    }


def fill_in_error(p: Any, X_true: ArrayLike, mask: ArrayLike) -> float:
    """RRMSE of p.reconstruct() on the entries held out: sqrt(sum (prediction - x)^2 / sum x^2).

    Parameters
    ----------
    p : posterior
        Of a fit to X with the entries of the mask made NaN.
    X_true : (n_samples, n_features)
        With numbers where mask is True. A frame is matched by name where the fit had names.
    mask : (n_samples, n_features) bool
        The entries held out; matched in the same way.

    Returns
    -------
    float
        1 for predictions of zero.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.2], snr=9, missing=0.1, seed=0)
    >>> p = sf.fit_vi(sim.X, n_factors=2, n_trials=2)
    >>> sf.fill_in_error(p, sim.X_complete, sim.missing) < 0.8
    True
    """
    predicted = _predicted(p)
    held_out = np.asarray(mask)
    if held_out.dtype != np.bool_:
        raise ValueError(f"mask must be boolean; got dtype {held_out.dtype}; pass e.g. mask.astype(bool)")
    values, held_out = _in_order(p, X_true, "X_true"), _in_order(p, mask, "mask").astype(bool)
    for what, given in (("X_true", values), ("mask", held_out)):
        if given.shape != predicted.shape:
            raise ValueError(
                f"{what} must have the shape of the training data, {predicted.shape}; got {given.shape}; {SHAPES}"
            )
    if not held_out.any():
        raise ValueError("mask must hold out at least one entry; got none; set mask to True where X was hidden")
    if not np.isfinite(values[held_out]).all():
        raise ValueError(
            "X_true must be finite where mask is True; got NaN or infinite entries; pass the values before they were "
            "hidden, and mask only what was observed"
        )
    return _rrmse(predicted[held_out], values[held_out])


def _in_order(p: Any, given: Any, what: str) -> Array:
    """(n_samples, n_features) in the order of the data that p was fitted to, by name where both have names."""
    if isinstance(p, Posterior):
        return training_matrix(given, p.labels, what, SHAPES)
    return np.asarray(given, dtype=np.float64)


def _predicted(p: Any) -> Array:
    return np.asarray(p.predicted() if hasattr(p, "predicted") else p.reconstruct())


def _included(probability: ArrayLike) -> NDArray[np.bool_]:
    """A loading counts as non-zero where that is more likely than not."""
    return np.asarray(probability) > 0.5


def _scale_to(activations: Array, target: Array) -> Array:
    """(n_factors,) c such that c times each column has the target's norm (6.3); 1 where either column vanishes."""
    own, wanted = np.linalg.norm(activations, axis=0), np.linalg.norm(target, axis=0)
    # Below this a norm is that of a factor that has died; dividing by it would overflow.
    alive = (own > 1e-150) & (wanted > 1e-150)
    return np.where(alive, wanted / np.where(alive, own, 1.0), 1.0)


def _rrmse(estimate: Array, truth: Array) -> float:
    """Relative root mean squared error (6.2); against a truth of zeros, 0 if met and infinite if not."""
    error, size = float(np.sum((estimate - truth) ** 2)), float(np.sum(truth**2))
    if size == 0.0:
        return 0.0 if error == 0.0 else float("inf")
    return float(np.sqrt(error / size))
