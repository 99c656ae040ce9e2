"""Variational inference."""

from .fit import ConvergenceWarning as ConvergenceWarning
from .fit import fit_vi as fit_vi
from .watch import VIProgress as VIProgress
