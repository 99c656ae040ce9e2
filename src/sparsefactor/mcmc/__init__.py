"""Collapsed Gibbs sampling."""

from ..storage.checkpoint import CheckpointWarning as CheckpointWarning
from .sample import sample as sample
from .watch import MCMCProgress as MCMCProgress
