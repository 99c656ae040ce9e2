"""What inference returns: two posteriors with the same methods. Imports no inference."""

from .base import Posterior as Posterior
from .labels import CORRELATION_DIMS as CORRELATION_DIMS
from .labels import COVARIATE_DIMS as COVARIATE_DIMS
from .labels import DIMS as DIMS
from .labels import GROUP_DIMS as GROUP_DIMS
from .labels import MODULE_DIMS as MODULE_DIMS
from .labels import NOISE_DIMS as NOISE_DIMS
from .labels import OTHER_FACTOR as OTHER_FACTOR
from .labels import SIGNED as SIGNED
from .labels import Labels as Labels
from .mcmc import MCMCPosterior as MCMCPosterior
from .variational import Status as Status
from .variational import VIPosterior as VIPosterior
from .verdict import Verdict as Verdict
