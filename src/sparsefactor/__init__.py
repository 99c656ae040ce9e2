"""Bayesian sparse factor analysis: a few interpretable factors, each touching few features, with honest uncertainty.

Names are loaded when they are first used, so that `import sparsefactor` stays quick. Two functions share their
module's name; they are loaded at once, so that the name always means the function.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .relabel import match as match
from .relabel import relabel as relabel
from .simulate import Simulation as Simulation
from .simulate import simulate as simulate
from .simulate import simulate_paper as simulate_paper
from .version import __version__ as __version__

if TYPE_CHECKING:
    from . import datasets as datasets
    from . import plot as plot
    from .association import Association as Association
    from .choice import Comparison as Comparison
    from .choice import choose_n_factors as choose_n_factors
    from .choice import compare as compare
    from .diagnostics import Diagnostics as Diagnostics
    from .diagnostics import SamplingWarning as SamplingWarning
    from .estimator import SparseFactorAnalysis as SparseFactorAnalysis
    from .genesets import Enrichment as Enrichment
    from .genesets import annotate as annotate
    from .genesets import confirm as confirm
    from .genesets import enrich as enrich
    from .genesets import read_gene_sets as read_gene_sets
    from .interop import pl as pl
    from .interop import tl as tl
    from .kernels.cpu.compiled import CacheWarning as CacheWarning
    from .mcmc import CheckpointWarning as CheckpointWarning
    from .mcmc import MCMCProgress as MCMCProgress
    from .mcmc import sample as sample
    from .metrics import baseline as baseline
    from .metrics import confusion as confusion
    from .metrics import fill_in_error as fill_in_error
    from .metrics import score as score
    from .model import Beta as Beta
    from .model import Prior as Prior
    from .posterior import MCMCPosterior as MCMCPosterior
    from .posterior import Status as Status
    from .posterior import Verdict as Verdict
    from .posterior import VIPosterior as VIPosterior
    from .reading import read_table as read_table
    from .start import Start as Start
    from .storage import load as load
    from .vi import ConvergenceWarning as ConvergenceWarning
    from .vi import VIProgress as VIProgress
    from .vi import fit_vi as fit_vi

_HOME = {
    "Association": "association",
    "Beta": "model",
    "CacheWarning": "kernels.cpu.compiled",
    "CheckpointWarning": "mcmc",
    "Comparison": "choice",
    "ConvergenceWarning": "vi",
    "Diagnostics": "diagnostics",
    "Enrichment": "genesets",
    "MCMCPosterior": "posterior",
    "MCMCProgress": "mcmc",
    "Prior": "model",
    "SamplingWarning": "diagnostics",
    "SparseFactorAnalysis": "estimator",
    "Start": "start",
    "Status": "posterior",
    "VIPosterior": "posterior",
    "VIProgress": "vi",
    "Verdict": "posterior",
    "annotate": "genesets",
    "baseline": "metrics",
    "choose_n_factors": "choice",
    "compare": "choice",
    "confirm": "genesets",
    "confusion": "metrics",
    "enrich": "genesets",
    "read_gene_sets": "genesets",
    "fill_in_error": "metrics",
    "fit_vi": "vi",
    "load": "storage",
    "read_table": "reading",
    "sample": "mcmc",
    "score": "metrics",
}

# Modules; pl and tl are where users of scanpy look for them.
_MODULES = {"datasets": "datasets", "pl": "interop.pl", "plot": "plot", "tl": "interop.tl"}

__all__ = ["Simulation", "__version__", "match", "relabel", "simulate", "simulate_paper", *sorted(_HOME), *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f".{_MODULES[name]}", __name__)
    if name not in _HOME:
        raise AttributeError(f"module 'sparsefactor' has no attribute {name!r}; its public names are {__all__}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return list(__all__)
