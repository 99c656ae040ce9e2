"""Posteriors, draws and checkpoints on disk, in zarr 3: `save` and `load`; and moments over draws."""

from .lazy import relabelled_tree as relabelled_tree
from .moments import rearranged as rearranged
from .moments import reduced as reduced
from .results import load as load
from .results import save as save

__all__ = ["load", "rearranged", "reduced", "relabelled_tree", "save"]
