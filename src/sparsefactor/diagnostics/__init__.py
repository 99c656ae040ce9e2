"""Can these chains be used? R-hat, effective sample sizes and Monte Carlo errors, modes, and a verdict in words.

The measures see every parameter under the one labelling of all draws, and quantities that need no labels at all.
"""

from .measures import measure as measure
from .modes import Mode as Mode
from .modes import find_modes as find_modes
from .public import Diagnostics as Diagnostics
from .public import diagnose as diagnose
from .quantities import summaries as summaries
from .verdict import ESS_PER_CHAIN as ESS_PER_CHAIN
from .verdict import R_HAT_LIMIT as R_HAT_LIMIT
from .verdict import ChainsVerdict as ChainsVerdict
from .verdict import SamplingWarning as SamplingWarning
from .verdict import judge as judge
