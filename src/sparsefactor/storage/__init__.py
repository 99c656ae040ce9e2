"""Posteriors and draws on disk: `save` and `load`, draws that are read when they are looked at, moments over them."""

from .files import load as load
from .files import save as save
from .lazy import relabelled_tree as relabelled_tree
from .moments import rearranged as rearranged
from .moments import reduced as reduced

__all__ = ["load", "rearranged", "reduced", "relabelled_tree", "save"]
