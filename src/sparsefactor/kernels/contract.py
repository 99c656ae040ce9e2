"""What passes between the row pass and the column step, and who must provide them (math.md, section 4).

    row pass:     given a `Message` from the columns, update each row's (z, l) and tau, return `Sums` over the rows
    column step:  given the `Sums`, update F; then alpha, pi, the scale and column-wise noise from a few numbers

One contract serves VI and Gibbs, complete and masked data, and every noise structure. Noise enters twice: as a
precision per row (`noise="feature"`, updated by the row pass itself) or as a weight per column (`"shared"` and
`"sample"`, already multiplied into the message). Missing entries are zeros in Y and change only Gram matrices.

Shapes: G features, N samples, K factors, M modules, V groups. N* is N for masked data and 0 for complete data. What
belongs to modules is empty where the prior has one module only, which is as good as none. (K, V?) is (K,), or (K, V)
where features are in several known groups; `Prior.by_row` gives each row its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
NONE: Array = np.zeros(0)
CERTAIN = 80.0  # prior log odds of a direction's inclusion: its probability is one to the last bit
NOWHERE: NDArray[np.intp] = np.zeros(0, np.intp)


class Message(NamedTuple):
    """All that the rows need to know of the columns (equation 4.2)."""

    F: Array  # (N, K) column weight times E[f_j]
    gram: Array  # (K, K) sum over samples of weight times E[f_j f_j']
    share: Array  # (N*, K, K) each sample's part of `gram`
    alpha: Array  # (K, V?) E[alpha_k]
    log_alpha: Array  # (K, V?) E[log alpha_k]
    logit: Array  # (1, V or G, K) E[log pi - log(1 - pi)], for all rows, each group's, or each row's; Gibbs: or (M, K)
    scale: Array  # (K,) multiplies the stored loadings before they are used: a pending change of scale
    log_in: Array = NONE  # (K, M) E[log pi] of each module
    log_out: Array = NONE  # (K, M) E[log(1 - pi)]
    log_weight: Array = NONE  # (M,) E[log w]
    weight: Array = NONE  # (N,) column precisions, which F, gram and share have in them


class VITerms(NamedTuple):
    """The rows' part of the ELBO's terms of these names; the columns add theirs (3.8 to 3.10)."""

    likelihood: float = 0.0
    loadings: float = 0.0
    noise: float = 0.0

    def plus(self, likelihood: float, loadings: float, noise: float) -> VITerms:
        return VITerms(likelihood + self.likelihood, loadings + self.loadings, noise + self.noise)


class ELBOTerms(NamedTuple):
    """The ELBO, term by term (3.7)."""

    likelihood: float
    loadings: float
    activations: float
    noise_precision: float
    loading_precision: float
    inclusion_rate: float
    factor_correlation: float = 0.0

    @property
    def total(self) -> float:
        total = 0.0
        for term in self:  # in this order: Python's own sum rounds otherwise from version to version
            total += term
        return total


class GibbsTerms(NamedTuple):
    """The rows' part of the log joint density of a draw (2.14)."""

    weighted_ss: float = 0.0  # sum of tau_i y_i'y_i
    noise: float = 0.0  # sum of n_i log(tau_i) / 2 + log p(tau_i)
    log_odds: float = 0.0  # sum of the prior log odds of active z
    base: float = 0.0  # log density of the loadings on a design's directions


class Sums(NamedTuple):
    """All that the columns need to know of the rows (equation 4.3); w_i is tau_i, or 1 for column-wise noise."""

    LY: Array  # (K, N) sum of w_i E[l_i] y_i'
    LL: Array  # (K, K) sum of w_i E[l_i l_i'] over the rows whose mask is kept as "all but these"
    LL_share: Array  # (N*, K, K) what to add to LL for each sample
    active: Array  # (K, V?) sum of E[z_ik]
    l2: Array  # (K, V?) sum of E[z_ik l_ik^2]
    elbo: VITerms = VITerms()  # of a pass of VI
    joint: GibbsTerms = GibbsTerms()  # of a pass of Gibbs sampling
    members: Array = NONE  # (M,) sum of E[c_i = m]
    active_in: Array = NONE  # (K, M) sum of E[z_ik, c_i = m]
    shift: Array = NONE  # (N,) what a design's directions, where there are any, add to a sample's sum of squares
    explained: Array = NONE  # (N,) what the activations take off it, where they were drawn in the same pass
    f2: Array = NONE  # (K,) and the activations' sums of squares


class VIRows(NamedTuple):
    """q(l, z) and q(tau) of the rows (equations 3.1 and 3.3)."""

    mu: Array  # (G, K) mean of l given z = 1
    s2: Array  # (G, K) variance of l given z = 1
    eta: Array  # (G, K) probability that z = 1
    tau: Array  # (G,) E[tau_i]; ones for column-wise noise
    member: Array = NONE  # (G, M) probability that c_i = m
    within: Array = NONE  # (G, K, M) probability that z = 1 given c_i = m; `eta` is its mean over modules
    base: Array = NONE  # (G, d) mean of the loadings on a design's directions, where there are any
    base_var: Array = NONE  # (G, d) their variance


class VIColumns(NamedTuple):
    """q(F), q(alpha), q(pi) and column-wise q(tau) (equations 3.2 to 3.6)."""

    f_mean: Array  # (K, N)
    f_var: Array  # (K, N) independent, or (1 or N, K, K) joint
    tau_shape: Array  # (N,), or (0,) for noise="feature"
    tau_rate: Array
    alpha_shape: Array  # (K, V?)
    alpha_rate: Array
    pi_a: Array  # (K, V?), or (0,) where inclusion is given; with modules (K, M + 1), the last common to all modules
    pi_b: Array
    own: Array = NONE  # (K,) probability that a factor has a rate of its own in every module
    w_shape: Array = NONE  # (M,) of the Dirichlet on the modules' weights
    phi: Array = NONE  # (K, K) correlations of the factors; none where they are uncorrelated
    slide: Array = NONE  # (K, d) what is to go from f_mean, which lacks it already, to the rows' base


class Climber(NamedTuple):
    """A trial of VI between two iterations, for engines that make many of them by one call."""

    state: Any  # rows, columns, sums, the ELBO's terms and the ELBO, as `VIState`
    t: float  # of the momentum's sequence
    previous: Any  # (K, N) activations of the last plain step, or None
    iterations: int
    until: int


class GibbsRows(NamedTuple):
    """A draw of the rows."""

    Z: NDArray[np.int8]  # (G, K)
    L: Array  # (G, K)
    tau: Array  # (G,); ones for column-wise noise
    base: Array = NONE  # (G, d) loadings on a design's directions, where there are any
    member: NDArray[np.intp] = NOWHERE  # (G,) each row's module, where there are several


class GibbsColumns(NamedTuple):
    """All that a move's rows need to know of the columns."""

    F: Array  # (K, N)
    alpha: Array  # (K, V?)
    logit: Array  # (1, V or G, K) prior log odds of inclusion; (M, K) where rows are in modules
    weight: Array  # (N,) column precisions (ones for noise="feature")
    scale: Array  # (K,) multiplies the stored loadings before they are used
    phi: Array = NONE  # (K, K) prior covariance of the activations; none where it is the identity


# The sampler's moves by name (gibbs/moves.py). Of "scale" no engine need know.
MOVE_NAMES = ("scale", "rotation", "shear", "column", "noise")
# Widths of the brackets in which slices of log alpha, logit pi and log tau are sought.
ALPHA_WIDTH, RATE_WIDTH, TAU_WIDTH = 3.0, 4.0, 3.0
TRIES = 60  # of a slice at most; a bracket has shrunk to nothing long before
HELD = 0.02  # variance of a factor's activations given all rows but one, below which draws given them do as well
FREE_WIDTH = 5.0  # of a slice of a loading, in standard deviations
LOOSE = 0.3  # variance of a factor's activations given all rows but one, above which that row may have it to itself


class RowStream(NamedTuple):
    """Names the randomness by row of one pass or move: each engine draws it where it is needed (2.6)."""

    key0: np.uint64
    key1: np.uint64
    sweep: np.uint64


class RowNoise(NamedTuple):
    """The randomness of one Gibbs row pass, indexed by row, so that no split of the rows can change it."""

    uniform: Array  # (G, K) for z
    normal: Array  # (G, K) for l, used at the active factors
    gamma: Array  # (G,) standard gamma with shape noise_shape + n_i / 2, for tau


class ShearNoise(NamedTuple):
    """The randomness of shears along D factors (2.11)."""

    order: NDArray[np.intp]  # (D,) the factors to shear along
    step: Array  # (D, K, P) proposed shears
    log_uniform: Array  # (D, K, P)
    stream: RowStream  # for z and l


class RunRule(NamedTuple):
    """What stays as it is in a run of many sweeps of Gibbs sampling, of which only the last draw counts."""

    sweeps: int
    every: int  # sweeps between moves: scale where factors are uncorrelated, rotation and shear
    n_samples: float
    n_pairs: int  # that are turned at a time
    shears: Array  # (P,) standard deviations of proposed shears
    directions: int  # that factors are sheared along at a time
    kinds: NDArray[np.int64]  # (K,) of the factors, which exchange places with others of another kind
    loading_shape: float
    loading_rate: float
    learnt: bool
    a: float  # of the Beta prior on inclusion
    b: float
    correlation_df: float  # 0 where factors are uncorrelated
    largest: float  # that activations may be


class RotationNoise(NamedTuple):
    """The randomness of rotations of P pairs of factors (2.10)."""

    pairs: NDArray[np.intp]  # (P, 2)
    exchange: Array  # (P,) uniform; 1 where the pair is not to be exchanged
    log_height: Array  # (P,) log of a uniform: the slice's height below the present density
    bracket: Array  # (P,) uniform: where the present angle lies in the first bracket
    angle: Array  # (P, TRIES) uniform: angles that are tried
    stream: RowStream  # for z and l


class ColumnNoise(NamedTuple):
    """The randomness of drawing D factors' slab precisions, inclusion rates and columns of loadings (2.15).

    V: groups, or 1.
    """

    order: NDArray[np.intp]  # (D,)
    proposal: Array  # (D, V, 2) log alpha and logit pi of a joint proposal
    log_uniform: Array  # (D, V) for the proposal
    log_height: Array  # (D, V, 2) of the slices of log alpha and of logit pi
    bracket: Array  # (D, V, 2) where the present value lies in the first bracket
    tries: Array  # (D, V, 2, TRIES)
    stream: RowStream  # for z and l


class PrecisionNoise(NamedTuple):
    """The randomness of drawing some rows' own parts, and then the activations (2.16, 2.17)."""

    start: int  # the row to begin with; those that follow take their turns, the first after the last
    n_rows: int  # to draw
    stream: RowStream  # for the rows' slices
    normal: Array  # (K, N)


class CorrelationNoise(NamedTuple):
    """The randomness of the draw of the factors' correlations (2.19), and of the scales at which moves are made."""

    scales: Array  # (3, K) standard gammas: of the draw, and of the moves of 2.10 and 2.11
    normal: Array  # (K, K) standard normals
    gamma: Array  # (K,) standard gammas of the shapes that (2.19b) asks for
    log_uniform: float


class MoveNoise(NamedTuple):
    """The randomness of the moves of one sweep, in their order; None for those that are not made."""

    rotation: RotationNoise | None = None
    shear: ShearNoise | None = None
    column: ColumnNoise | None = None
    precision: PrecisionNoise | None = None
    correlation: CorrelationNoise | None = None  # made first
