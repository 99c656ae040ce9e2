"""The methods: each takes standardised X (samples x features, NaN where missing), K and a seed, and returns a `Fitted`
whose loadings are standardised.

A method is named in one of three ways:
    default, raced, varimax, ...        a name in METHODS
    fit:n_trials=1,init=varimax         `fit_vi` with these arguments; arguments of `Prior` go to the prior, for example
                                        fit:inclusion=Beta(1, 9) or fit:inclusion=0.1; sample:... does it by `sample`
    module:function                     a function (X, K, seed) that returns a `Fitted` or a posterior of this package
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import sparsefactor as sf
from benchmarks.peers import methods as peers
from benchmarks.peers.methods import Fitted, gaussian

Array = np.ndarray
Method = Callable[[Array, int, int], Any]
COMMON = {"scale": True, "progress": False}
INFERENCE: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "fit": (sf.fit_vi, COMMON | {"n_threads": 1}),
    "sample": (sf.sample, COMMON | {"n_jobs": 1}),
}
PRIOR_ARGUMENTS = {field.name for field in dataclasses.fields(sf.Prior)} - {"n_factors"}


def from_posterior(p: Any) -> Fitted:
    """Loadings in units in which the activations have a mean square of one, and the prediction of every entry."""
    size = np.sqrt(np.mean(np.asarray(p.activations_mean) ** 2 + np.asarray(p.activations_sd) ** 2, axis=0))
    mean, sd = p.impute(return_sd=True)
    return Fitted(mean, np.asarray(p.loadings_mean) * size, density=gaussian(mean, sd))


def parse_arguments(text: str) -> dict[str, Any]:
    """Keyword arguments written as Python; a bare word is a string, and Beta(a, b) is `sparsefactor.Beta`."""

    def value(node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Beta":
            return sf.Beta(*[ast.literal_eval(argument) for argument in node.args])
        return ast.literal_eval(node)

    call = ast.parse(f"f({text})", mode="eval").body
    if not isinstance(call, ast.Call) or call.args or any(word.arg is None for word in call.keywords):
        raise ValueError(f"arguments must be written name=value,...; got {text!r}")
    return {str(word.arg): value(word.value) for word in call.keywords}


def variant(kind: str, text: str) -> Method:
    """`fit_vi` or `sample` with the arguments in the text."""
    function, fixed = INFERENCE[kind]
    given = parse_arguments(text)
    for_prior = {name: value for name, value in given.items() if name in PRIOR_ARGUMENTS}
    rest = {name: value for name, value in given.items() if name not in PRIOR_ARGUMENTS}
    return lambda X, K, seed: function(X, sf.Prior(n_factors=K, **for_prior), seed=seed, **fixed | rest)


def factor_analysis(rotation: str) -> Method:
    return lambda X, K, seed: peers.factor_analysis(X, K, seed, rotation)


def unit_factors(method: Method) -> Method:
    """A peer whose activations are of any size, with loadings in units of their root mean square."""

    def fit(X: Array, K: int, seed: int) -> Fitted:
        fitted = method(X, K, seed)
        size = np.sqrt(np.mean(fitted.activations**2, axis=0))
        return dataclasses.replace(fitted, loadings=fitted.loadings * size)

    return fit


METHODS: dict[str, Method] = {
    "default": variant("fit", ""),
    "raced": variant("fit", "n_trials=10"),
    "thorough": variant("fit", "search=thorough"),
    "varimax": factor_analysis("varimax"),
    "promax": factor_analysis("promax"),
    "oblimin": factor_analysis("oblimin"),
    "sparse_pca": unit_factors(peers.sparse_pca),
    "mofapy2": unit_factors(peers.mofa),
}
QUICK = ("default", "raced", "varimax", "promax")


def find(name: str) -> Method:
    """The method of that name."""
    kind, _, rest = name.partition(":")
    if name in METHODS:
        return METHODS[name]
    if kind in INFERENCE:
        return variant(kind, rest)
    if rest:
        return getattr(importlib.import_module(kind), rest)
    raise ValueError(f"no method {name!r}; pass one of {', '.join(METHODS)}, fit:name=value,... or module:function")


def fit(name: str, X: Array, K: int, seed: int) -> Fitted:
    """Fit by the method of that name, without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = find(name)(X, K, seed)
        return found if isinstance(found, Fitted) else from_posterior(found)
