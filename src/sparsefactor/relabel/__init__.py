"""Many draws, one labelling: permutations and signs of the factors (math.md, section 5).

The posterior does not change when factors that share a prior swap labels, or when a factor's loadings and
activations change sign together. `relabel` gives every draw the labels under which all draws look like draws around
one mode; `match` does the same for one posterior against a truth or another posterior.
"""

from .labelling import VARIANCE_FLOOR as VARIANCE_FLOOR
from .labelling import Labelling as Labelling
from .labelling import Relabelling as Relabelling
from .labelling import fixed_point as fixed_point
from .matching import Matching as Matching
from .matching import match as match
from .pairs import alike as alike
from .pairs import assignment as assignment
from .pairs import unit as unit
from .public import relabel as relabel
