"""Questions to a posterior: where new samples lie, what is missing, how likely data are, which loadings are there.

Functions of either posterior, which offers them as methods. They import no inference.
"""

from .density import covariance as covariance
from .density import log_density as log_density
from .false_rates import discoveries as discoveries
from .false_rates import local_false_sign_rate as local_false_sign_rate
from .missing import impute as impute
from .project import transform as transform
from .stacking import stacking_weights as stacking_weights
