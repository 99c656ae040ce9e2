"""Posteriors and draws on disk: `save` and `load`, draws that are read when they are looked at, moments over them."""

from .files import load as load
from .files import save as save

__all__ = ["load", "save"]
