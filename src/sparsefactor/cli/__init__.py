"""The command line: a thin command for each thing that can be done in Python, on files."""

# isort: off
# Each adds its commands, in the order of the help.
from . import fitting, looking, drawing, predict, choosing, simulating, warmup

# isort: on
from .app import app as app
from .app import main as main

__all__ = ["app", "choosing", "drawing", "fitting", "looking", "main", "predict", "simulating", "warmup"]
