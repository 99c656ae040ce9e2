"""Rows on a device, run by kernels in JAX."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from scipy.special import digamma, gammaln

from ..data import Data
from ..kernels.contract import Array, GibbsRows, GibbsTerms, Message, RowStream, Sums, VIColumns, VIRows, VITerms
from ..kernels.jax.activations import activations, drawn_activations
from ..kernels.jax.gibbs_rows import gibbs_pass
from ..kernels.jax.library import JAX, host, jax, jnp, with_64_bits, x64
from ..kernels.jax.problem import Kind, Problem, dealt
from ..kernels.jax.row_kernel import kernels_compile
from ..kernels.jax.vi_modules import module_pass
from ..kernels.jax.vi_rows import vi_pass
from ..model import Prior
from .devices import room_of
from .jax_data import moments
from .jax_moves import JaxMoves
from .jax_shortcut import JaxGibbs, JaxVI, each_sample, stream_of
from .jax_verbs import JaxVerbs

COPIES = 4  # of the matrix while a fit is compiled for: 3.5 were seen
PRECISION = "bf16x3"  # of products of single precision: as exact as float32, twice as fast (python -m benchmarks.gpu)


class JaxEngine(JaxMoves, JaxVerbs):
    """Kernels in JAX for one data set and prior: data and rows are on the device from start to result.

    Agreement with the oracle: 1e-9 relative for float64 data, 1e-4 for float32 data, whose products with Y and with its
    mask are of single precision and all else float64. half: Y is held as float16; the model is then that of the rounded
    data, and agrees with the oracle on these as float32 data do.
    """

    name = "jax"
    on = JAX

    @with_64_bits
    def __init__(self, data: Data, prior: Prior, *, half: bool = False, _problem: Problem | None = None) -> None:
        prior = prior.in_units_of(data)
        self.data, self.prior = data, prior
        self.problem = placed(data, prior, half, _problem)
        devices = self.problem.Y.sharding.device_set
        # A compiler tries out a product on copies of the matrix, and there is not always room for several at it.
        self.one_caller = len(devices) > 1 or COPIES * self.problem.Y.nbytes > room_of(next(iter(devices)))
        self.kind = Kind(
            masked=not data.is_complete,
            lists_missing=lists_missing(data),
            feature_noise=prior.noise == "feature",
            n_groups=len(prior.group_names) if prior.grouped else 1,
            noise_shape=float(prior.noise_shape),
            precision=PRECISION,
            n_devices=len(devices),
            kernel="compiled" if len(devices) == 1 and kernels_compile() else "",
        )

    def with_prior(self, prior: Prior) -> JaxEngine:
        """The same engine under another prior; the data stay where they are."""
        return type(self)(self.data, prior, _problem=self.problem)

    def scope(self) -> AbstractContextManager[Any]:
        """64-bit numbers in JAX, which also has them between calls."""
        return x64()

    def passed(self, run: Any, rows: Any, message: Message, *noise: Any) -> tuple[Any, Sums]:
        """A row pass; rows may also be the host's."""
        if self.problem.real.shape[0]:
            rows = type(rows)(*(self.with_rows(a, a.dtype) if len(a) else a for a in rows))
        numbered = {"first": self.data.first} if run is gibbs_pass and self.data.first else {}
        after, sums = run(self.problem, rows, message, *noise, kind=self.kind, **numbered)
        return after, sums

    # ---- variational inference --------------------------------------------------------------------------------

    @with_64_bits
    def vi_row_pass(self, rows: VIRows, message: Message) -> tuple[VIRows, Sums]:
        """A pass on the device; its sums come to the host."""
        run = module_pass if self.prior.n_modules > 1 else vi_pass
        after, sums = self.passed(run, plain(rows), unnamed(message))
        sums = host(sums)
        own = VIRows(*after[: 6 if self.prior.n_modules > 1 else 4])
        return own, sums._replace(elbo=VITerms(*map(float, sums.elbo)), joint=GibbsTerms())

    def vi_shortcut(self, joint: bool) -> JaxVI:
        """Whole iterations on the device."""
        return JaxVI(self.problem, self.kind, self.data, self.prior)

    @with_64_bits
    def vi_activations(self, columns: VIColumns, sums: Sums, weight: Array) -> tuple[Array, Array]:
        """q(f) of every sample, as NumPy arrays."""
        mean, variance = host(activations(*needed(columns, sums), np.asarray(weight)))
        return mean, variance

    # ---- Gibbs sampling -----------------------------------------------------------------------------------------

    def gibbs_shortcut(self) -> JaxGibbs:
        """Row pass and activations in one call."""
        return JaxGibbs(self.problem, self.kind, self.data, self.prior)

    def row_noise(self, key: tuple[int, int], sweep: int) -> RowStream:
        """The stream's name: it is drawn where the rows are."""
        return stream_of(key, sweep)

    @with_64_bits
    def gibbs_row_pass(self, rows: GibbsRows, message: Message, noise: RowStream) -> tuple[GibbsRows, Sums]:
        """A pass on the device; what has the size of the samples stays there, for the activations' step."""
        after, sums = self.passed(gibbs_pass, rows, unnamed(message), noise)
        active, l2, joint = host((sums.active, sums.l2, sums.joint))
        own = rows._replace(Z=after.Z, L=after.L, tau=after.tau)
        return own, Sums(sums.LY, sums.LL, sums.LL_share, active, l2, joint=GibbsTerms(*map(float, joint)))

    @with_64_bits
    def gibbs_activations(self, sums: Sums, weight: Array, prior: Array, normal: Array) -> Array:
        """A draw of F, as a NumPy array."""
        each = each_sample(self.kind, self.prior)
        return np.asarray(drawn_activations(needed(None, sums)[1], weight, prior, normal, each=each))


def lists_missing(data: Data) -> bool:
    """Whether the mask on the device names the missing entries, or the observed ones: the fewer."""
    return data.observed is not None and 2.0 * data.n_observed > data.n_features * data.n_samples


def mask_of(data: Data) -> Any:
    """(G, N) the entries that the mask names; empty where all are observed."""
    if data.observed is None:
        return np.zeros((0, 0), bool)
    return ~data.observed if lists_missing(data) else data.observed


def placed(data: Data, prior: Prior, half: bool, old: Problem | None) -> Problem:
    """What the kernels need, on the device; the data themselves as an engine before has them there."""
    G = data.n_features
    feature = prior.noise == "feature"
    rate = np.broadcast_to(prior.noise_rate if feature else 1.0, G).astype(np.float64)
    half_count = 0.5 * data.row_count
    a, shape = float(prior.noise_shape), float(prior.noise_shape) + half_count
    # densities.gamma_kl less its terms in log(rate) and 1 / rate, which the rows add.
    kl = (shape - a) * digamma(shape) - gammaln(shape) + gammaln(a) - a * np.log(rate) - shape
    put = dealer(data.n_features, None if old is None else old.row_count)
    if old is None:
        Y, mask = put(data.Y.astype(np.float16) if half else data.Y), put(mask_of(data))
        row_ss = moments(Y, 1)[1] if half else put(data.row_ss)
    else:
        Y, mask, row_ss = old.Y, old.mask, old.row_ss
    count = put(data.row_count)
    return Problem(
        Y=Y,
        mask=mask,
        row_count=count,
        row_ss=row_ss,
        tau_shape=put(shape),
        noise_rate=put(rate, 1.0),
        group=put(prior.group_index if prior.grouped else np.zeros(0, np.int64)),
        real=put(np.ones(G, bool) if len(count) > G else np.zeros(0, bool)),
        likelihood_constant=put(half_count @ digamma(shape)),
        noise_constant=put(-kl.sum()),
        gibbs_constant=put(np.sum(a * np.log(rate) - gammaln(a))),
    )


def dealer(G: int, like: Any = None) -> Callable[..., Any]:
    """Puts arrays on the devices: rows dealt out to all of them, sums over rows being left to XLA.

    Where the rows do not go round, some are made up at the end, zeros unless another `fill` is given: see
    `Problem.real`. like: what was put there before.
    """
    devices = jax.devices() if like is None else list(like.sharding.device_set)
    n = len(devices)
    if n == 1:
        return lambda values, fill=0.0: jnp.asarray(values)
    mesh = jax.sharding.Mesh(np.array(sorted(devices, key=lambda device: device.id)), ("rows",))

    def put(values: Any, fill: float = 0.0) -> Any:
        by_row = bool(np.ndim(values)) and len(values) == G
        own = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*("rows",) * by_row))
        return dealt(values, own, -(-G // n) * n if by_row else None, fill)

    return put


def plain(rows: VIRows) -> VIRows:
    """Rows without what belongs to a design, which the engine around this one has."""
    return VIRows(*rows[:6])


def unnamed(message: Message) -> Message:
    """The message without its weights, which F, gram and share have in them."""
    return message._replace(weight=np.zeros(0))


def needed(columns: VIColumns | None, sums: Sums) -> tuple[Any, Sums]:
    """What the activations' step looks at."""
    own = None if columns is None else VIColumns(columns.f_mean, columns.f_var, *(np.zeros(0),) * 6, phi=columns.phi)
    return own, Sums(sums.LY, sums.LL, sums.LL_share, np.zeros(0), np.zeros(0), VITerms(), GibbsTerms())
