"""Collapsed Gibbs sampling."""

from .checkpoint import CheckpointWarning as CheckpointWarning
from .sample import sample as sample
from .watch import MCMCProgress as MCMCProgress
