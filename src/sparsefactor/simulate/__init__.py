"""Data drawn from the model, with the truth beside it: any shape, and the paper's own simulation."""

from .draw import simulate as simulate
from .paper import paper_inclusion as paper_inclusion
from .paper import simulate_paper as simulate_paper
from .simulation import Simulation as Simulation
