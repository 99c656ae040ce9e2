"""Starting points: point values of L and F from which VI climbs and chains set out.

The first start of a fit is factor analysis, rotated by varimax (vi/factor_analysis.py). Since no single start finds the
best optimum on every data set, further ones are of several kinds: all but the random start lie in the span of the
leading singular vectors and differ by how these are rotated. What has the size of the features stays with the engine,
which is asked for products of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .checks import checked_choice
from .computed import computed
from .data import Data
from .kernels.contract import Array
from .kernels.noise import row_stream
from .kernels.protocol import Engine
from .kernels.verbs import StartMatrix
from .model import Prior

# The order in which `init="auto"` takes its starts; repeated for further restarts with fresh randomness.
PORTFOLIO = ("factor_analysis", "ica", "varimax", "rotation", "ica", "varimax", "rotation", "ica", "rotation", "random")
# Up to this many samples (or features), the singular vectors come from the exact Gram matrix of the smaller side.
EXACT_SIDE = 1500
COMPLETION_ROUNDS = 30
POWERS, OVERSAMPLED = 3, 10  # rounds, and directions more than asked for, of the randomised way
ROUNDS = 100  # of a rotation at most


class Start(NamedTuple):
    """A starting point of one's own, for `init` of `fit_vi` and `sample`.

    Attributes
    ----------
    name : str
        Shown in `VIPosterior.trials`.
    L : (n_features, n_factors)
        Loadings, in the units that are fitted (centred, and scaled where that is asked for).
    F : (n_factors, n_samples)
        Activations, transposed as in math.md.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.2], snr=4, seed=0)
    >>> start = sf.Start("truth", sim.loadings, sim.activations.T)
    >>> sf.fit_vi(sim.X, n_factors=2, init=start).converged
    True
    """

    name: str
    L: Any  # an array; of the starts made here, the engine's own
    F: Array


def given(init: str | Start | Sequence[Start]) -> tuple[Start, ...]:
    """The starts of the user's own."""
    if isinstance(init, str):
        return ()
    return (init,) if isinstance(init, Start) else tuple(init)


def checked_init(init: object, names: Sequence[str]) -> None:
    """Refuse what is neither one of these names, nor a Start, nor a list of them."""
    if isinstance(init, Start):
        return
    if isinstance(init, list | tuple) and init and all(isinstance(own, Start) for own in init):
        return
    checked_choice("init", init, names, " or a Start")


def own_start(start: Start, data: Data, prior: Prior) -> Start:
    """A start of the user's own, checked, in the units of the data."""
    wanted = (data.n_features, prior.K), (prior.K, data.n_samples)
    if start.L.shape != wanted[0] or start.F.shape != wanted[1]:
        raise ValueError(
            f"a Start must have L of shape {wanted[0]} and F of shape {wanted[1]}; got {start.L.shape} and "
            f"{start.F.shape}; transpose or select"
        )
    if not (np.all(np.isfinite(start.L)) and np.all(np.isfinite(start.F))):
        raise ValueError("a Start must be finite; got NaN or infinite values; replace them")
    L, F = (np.ascontiguousarray(values, dtype=np.float64) for values in (start.L / data.unit, start.F))
    return Start(start.name, L, F)


class Leading(NamedTuple):
    """The leading singular vectors, as an engine's loadings and as activations."""

    engine: Engine
    L: Any  # (G, r) U S / sqrt(N) of the data at unit scale
    F: Array  # (r, N) sqrt(N) V'

    @property
    def rank(self) -> int:
        return len(self.F)


class StartMaker:
    """Makes starts for one engine; trial numbers make them differ, the seed makes them repeatable."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine, self.seed = engine, seed
        self.K, self.shape = engine.prior.K, (engine.data.n_features, engine.data.n_samples)

    def make(self, name: str, trial: int) -> Start:
        rng = np.random.default_rng([self.seed, trial])
        if name == "random":
            return self.random(rng)
        # The first start of each kind begins its rotation at the singular vectors themselves.
        first = trial in (0, PORTFOLIO.index(name))
        return self.rotated(name, ROTATIONS[name](self.leading, rng, first))

    def random(self, rng: np.random.Generator) -> Start:
        """The paper's start: every loading and activation an independent normal, at the data's scale."""
        L = self.engine.start_normals(self.K, self.matrix.scale / np.sqrt(self.K), row_stream(rng))
        return Start("random", L, rng.standard_normal((self.K, self.shape[1])))

    def rotated(self, name: str, R: Array) -> Start:
        """The leading singular vectors under the rotation R, activations of unit mean square, padded up to K."""
        L, F = self.engine.start_turn(self.leading.L, self.matrix.scale * R), R.T @ self.leading.F
        short = self.K - len(F)
        if short > 0:
            rng = np.random.default_rng([self.seed, 1, self.K])
            small = 0.1 * self.matrix.scale / np.sqrt(self.K)
            L = self.engine.start_join(L, self.engine.start_normals(short, small, row_stream(rng)))
            F = np.vstack([F, rng.standard_normal((short, self.shape[1]))])
        return Start(name, L, np.ascontiguousarray(F))

    @computed
    def matrix(self) -> StartMatrix:
        return self.engine.start_matrix()

    @computed
    def leading(self) -> Leading:
        matrix, rank = self.matrix, min(self.K, *self.shape)
        rng = np.random.default_rng([self.seed, 2])
        if not self.engine.data.is_complete:
            matrix = completed(self.engine, matrix, rank, rng)
        s, V, seen = decomposed(self.engine, matrix, rank, rng)
        root = np.sqrt(self.shape[1])
        if seen is None:
            L = matrix.times(V * ((s > 0) / root))
        else:
            L = self.engine.start_turn(seen[0], seen[1] * ((s > 0) / root))
        return Leading(self.engine, L, V.T * root)


def leading_vectors(engine: Engine, matrix: StartMatrix, rank: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """The leading singular values (rank,) of a matrix, and its right singular vectors (N, rank)."""
    return decomposed(engine, matrix, rank, rng)[:2]


def decomposed(
    engine: Engine, matrix: StartMatrix, rank: int, rng: np.random.Generator
) -> tuple[Array, Array, tuple[Any, Array] | None]:
    """As `leading_vectors`; and where Y V is known without another reading: loadings, and what to turn them by.

    Exact through the Gram matrix of the samples; through that of the features where they are fewer; randomised when
    both are many. A singular value lost in rounding has no direction of its own, and is zero.
    """
    G, N = engine.data.n_features, engine.data.n_samples
    if N <= EXACT_SIDE and max(G, rank) >= N:
        return (*largest(matrix.gram(), rank), None)
    if G <= EXACT_SIDE:
        s, U = largest(matrix.feature_gram(), rank)
        return s, np.where(s > 0, matrix.back(U) / np.where(s > 0, s, 1.0), 0.0), None
    Q = rng.standard_normal((N, rank + OVERSAMPLED))
    for _ in range(POWERS):
        Q, _ = np.linalg.qr(matrix.power(Q))
    L = matrix.times(Q)
    s, W = largest(engine.start_products(L), rank)
    return s, Q @ W, (L, W)


def largest(gram: Array, rank: int) -> tuple[Array, Array]:
    """The roots (rank,) of a Gram matrix's largest eigenvalues, zero where rounding has taken them, and its vectors."""
    values, vectors = np.linalg.eigh(gram)
    s = np.sqrt(np.maximum(values[::-1][:rank], 0.0))
    return np.where(s > 1e-7 * max(s[0], np.finfo(float).tiny), s, 0.0), vectors[:, ::-1][:, :rank]


def completed(engine: Engine, matrix: StartMatrix, rank: int, rng: np.random.Generator) -> StartMatrix:
    """The matrix with its holes filled by a shrunken truncated singular value decomposition, in turns."""
    for _ in range(COMPLETION_ROUNDS):
        s, V = leading_vectors(engine, matrix, rank, rng)
        # Shrink by the smallest kept value: what a factor takes from noise alone is of about that size.
        left = np.where(s > 0, np.maximum(s - s[-1], 0.0) / np.where(s > 0, s, 1.0), 0.0)
        matrix, change, size = matrix.filled(matrix.times(V * left), V)
        if change <= 1e-6 * size:
            break
    return matrix


def random_rotation(K: int, rng: np.random.Generator) -> Array:
    Q, R = np.linalg.qr(rng.standard_normal((K, K)))
    return np.asarray(Q * np.sign(np.diag(R)))


def rotate_randomly(leading: Leading, rng: np.random.Generator, first: bool) -> Array:
    return random_rotation(leading.rank, rng)


def rotate_varimax(leading: Leading, rng: np.random.Generator, first: bool) -> Array:
    """The rotation R for which the squared entries of L R vary most within columns (Kaiser, 1958)."""
    engine, G = leading.engine, leading.engine.data.n_features
    R = np.eye(leading.rank) if first else random_rotation(leading.rank, rng)
    products, previous = engine.start_products(leading.L), 0.0
    for _ in range(ROUNDS):
        cubes, squares = engine.start_bend(leading.L, R, "cube")
        U, s, Vt = np.linalg.svd(cubes - products @ R * (squares / (3.0 * G)))
        R = U @ Vt
        if s.sum() <= previous * (1 + 1e-6):
            break
        previous = s.sum()
    return R


def rotate_ica(leading: Leading, rng: np.random.Generator, first: bool) -> Array:
    """The rotation R for which the columns of whitened L R are least Gaussian (FastICA, all columns at once, tanh)."""
    engine, G = leading.engine, leading.engine.data.n_features
    square = np.diag(engine.start_products(leading.L))[:, None]
    whiten = np.where(square > 0, np.sqrt(G / np.where(square > 0, square, 1.0)), 0.0)
    R = np.eye(leading.rank) if first else random_rotation(leading.rank, rng)
    for _ in range(ROUNDS):
        products, slopes = engine.start_bend(leading.L, whiten * R, "tanh")
        U, _, Vt = np.linalg.svd((whiten * products - R * slopes) / G)
        new = U @ Vt
        moved = 1.0 - np.min(np.abs(np.sum(new * R, axis=0)))
        R = new
        if moved < 1e-4:
            break
    return R


Rotation = Callable[[Leading, np.random.Generator, bool], Array]
ROTATIONS: dict[str, Rotation] = {"varimax": rotate_varimax, "ica": rotate_ica, "rotation": rotate_randomly}
MADE = ("random", *ROTATIONS)  # by `StartMaker`
INITS = ("auto", "factor_analysis", *MADE)
