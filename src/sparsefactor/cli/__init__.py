"""The command line: a thin command for each thing that can be done in Python, on files."""

from . import asking, choosing, drawing, fitting, looking, study  # each adds its commands
from .app import app as app
from .app import main as main

__all__ = ["app", "asking", "choosing", "drawing", "fitting", "looking", "main", "study"]
