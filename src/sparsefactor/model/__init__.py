"""The sparse factor model: its prior, checked once, and its log joint density (math.md, section 1)."""

from .beta import Beta as Beta
from .joint import draw_modules as draw_modules
from .joint import log_joint as log_joint
from .passed import checked_prior as checked_prior
from .prior import Prior as Prior
from .units import CONSTANT as CONSTANT
from .units import LEARNT_SLAB as LEARNT_SLAB
from .units import RELATIVE_NOISE_RATE as RELATIVE_NOISE_RATE
from .units import PriorWarning as PriorWarning
from .units import refuse_overflow as refuse_overflow
from .units import slab_default as slab_default
from .units import warn_if_strong as warn_if_strong
