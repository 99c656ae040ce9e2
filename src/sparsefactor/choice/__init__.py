"""Which prior, and how many factors: priors compared by what they predict of entries held out."""

from .comparison import Comparison as Comparison
from .public import choose_n_factors as choose_n_factors
from .public import compare as compare
