"""Which prior, and how many factors: priors compared by how well they predict held-out entries."""

from .comparison import Comparison as Comparison
from .public import choose_n_factors as choose_n_factors
from .public import compare as compare
