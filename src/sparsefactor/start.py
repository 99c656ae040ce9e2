"""Starting points: point values of L and F from which VI climbs and chains set out.

No single start finds the best optimum on every data set, so `init="auto"` is a portfolio. All but the random start
lie in the span of the leading singular vectors and differ by how these are rotated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .checks import checked_choice
from .computed import computed
from .data import Data
from .kernels.contract import Array
from .model import Prior

# The order in which `init="auto"` takes its starts; repeated for further trials with fresh randomness.
PORTFOLIO = ("ica", "varimax", "rotation", "ica", "varimax", "rotation", "ica", "rotation", "ica", "random")
# Up to this many samples (or features), the singular vectors come from the exact Gram matrix of the smaller side.
EXACT_SIDE = 1500
COMPLETION_ROUNDS = 30


class Start(NamedTuple):
    """A starting point of one's own, for `init` of `fit_vi` and `sample`.

    Attributes
    ----------
    name : str
        Shown in `VIPosterior.trials`.
    L : (n_features, n_factors)
        Loadings, in the units that are fitted (centred, and scaled where that is asked for).
    F : (n_factors, n_samples)
        Activations, transposed as in docs/math.md.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.2], snr=4, seed=0)
    >>> start = sf.Start("truth", sim.loadings, sim.activations.T)
    >>> sf.fit_vi(sim.X, n_factors=2, init=start).converged
    True
    """

    name: str
    L: Array
    F: Array


def starts(data: Data, prior: Prior, init: str | Start, n_trials: int, seed: int) -> Iterator[Start]:
    """The starting points of `n_trials` trials; a Start of the user's own is one trial."""
    if isinstance(init, Start):
        _check_start(init, data, prior)
        yield init._replace(L=init.L / data.unit)
        return
    checked_choice("init", init, INITS, " or a Start")
    known = data.design is not None and data.design.covariates is not None
    maker = StartMaker(data.less(data.regression()) if known else data, prior.K, seed)
    for trial in range(n_trials):
        name = PORTFOLIO[trial % len(PORTFOLIO)] if init == "auto" else init
        yield maker.make(name, trial)


def _check_start(start: Start, data: Data, prior: Prior) -> None:
    wanted = (data.n_features, prior.K), (prior.K, data.n_samples)
    if start.L.shape != wanted[0] or start.F.shape != wanted[1]:
        raise ValueError(
            f"a Start must have L of shape {wanted[0]} and F of shape {wanted[1]}; got {start.L.shape} and "
            f"{start.F.shape}; transpose or select"
        )
    if not (np.all(np.isfinite(start.L)) and np.all(np.isfinite(start.F))):
        raise ValueError("a Start must be finite; got NaN or infinite values; replace them")


class StartMaker:
    """Makes starts for one data set; trial numbers make them differ, the seed makes them repeatable."""

    def __init__(self, data: Data, K: int, seed: int) -> None:
        self.data, self.K, self.seed = data, K, seed

    def make(self, name: str, trial: int) -> Start:
        rng = np.random.default_rng([self.seed, trial])
        if name == "random":
            return self.random(rng)
        # The first trial of each kind starts its rotation from the singular vectors themselves.
        first = PORTFOLIO.index(name) == trial
        return self.rotated(name, ROTATIONS[name](self.loadings, rng, first))

    def random(self, rng: np.random.Generator) -> Start:
        """The paper's start: every loading and activation an independent normal, at the data's scale."""
        scale = self.data.unit_scale / np.sqrt(self.K)
        L = scale * rng.standard_normal((self.data.n_features, self.K))
        return Start("random", L, rng.standard_normal((self.K, self.data.n_samples)))

    def rotated(self, name: str, R: Array) -> Start:
        """The leading singular vectors under the rotation R, activations of unit mean square, padded up to K."""
        L, F = self.data.unit_scale * (self.loadings @ R), R.T @ self.activations
        short = self.K - L.shape[1]
        if short > 0:
            rng = np.random.default_rng([self.seed, 1, self.K])
            small = 0.1 * self.data.unit_scale / np.sqrt(self.K)
            L = np.hstack([L, small * rng.standard_normal((len(L), short))])
            F = np.vstack([F, rng.standard_normal((short, F.shape[1]))])
        return Start(name, np.ascontiguousarray(L), np.ascontiguousarray(F))

    @property
    def loadings(self) -> Array:
        return self._vectors[0]

    @property
    def activations(self) -> Array:
        return self._vectors[1]

    @computed
    def _vectors(self) -> tuple[Array, Array]:
        """(G, r) loadings U S / sqrt(N) of the data at unit scale and (r, N) activations sqrt(N) V', r <= K."""
        data, scale = self.data, self.data.unit_scale
        rank = min(self.K, *data.Y.shape)
        rng = np.random.default_rng([self.seed, 2])
        if data.observed is None:
            U, s, Vt = leading_svd(data.Y, scale, list(data.chunks()), rank, rng)
        else:
            U, s, Vt = completed_svd(data, rank, rng)
        N = data.n_samples
        return U * (s / np.sqrt(N)), Vt * np.sqrt(N)


def leading_svd(
    Y: NDArray[np.floating], scale: float, chunks: list[slice], rank: int, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    """The `rank` leading singular triplets of Y / scale, a chunk of rows at a time.

    Exact through the Gram matrix of the samples; through that of the features where they are fewer; randomised when
    both are many.
    """
    G, N = Y.shape

    def part(rows: slice) -> Array:
        return np.asarray(Y[rows], dtype=np.float64) / scale

    def times(V: Array) -> Array:
        return np.concatenate([part(rows) @ V for rows in chunks])

    if N <= EXACT_SIDE and max(G, rank) >= N:
        values, vectors = np.linalg.eigh(sum(part(rows).T @ part(rows) for rows in chunks))
        V = vectors[:, ::-1][:, :rank]
        return _left_vectors(times(V), np.sqrt(np.maximum(values[::-1][:rank], 0.0)), V)
    if G <= EXACT_SIDE:
        whole = part(slice(None))
        values, vectors = np.linalg.eigh(whole @ whole.T)
        U = vectors[:, ::-1][:, :rank]
        V, s, Ut = _left_vectors(whole.T @ U, np.sqrt(np.maximum(values[::-1][:rank], 0.0)), U)
        return Ut.T, s, V.T
    Q = rng.standard_normal((N, rank + 10))
    for _ in range(3):
        left, _ = np.linalg.qr(times(Q))
        Q, _ = np.linalg.qr(sum(part(rows).T @ left[rows] for rows in chunks))
    U, s, Wt = np.linalg.svd(times(Q), full_matrices=False)
    return U[:, :rank], s[:rank], (Wt @ Q.T)[:rank]


def _left_vectors(YV: Array, s: Array, V: Array) -> tuple[Array, Array, Array]:
    """U, s and V' from Y V; a singular value lost in rounding has no direction of its own, and gets none."""
    solid = s > 1e-7 * max(s[0], np.finfo(float).tiny)
    return np.where(solid, YV / np.where(solid, s, 1.0), 0.0), np.where(solid, s, 0.0), V.T


def completed_svd(data: Data, rank: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Leading singular triplets of the data at unit scale, its holes filled by a shrunken truncated SVD in turns."""
    assert data.observed is not None
    chunks = list(data.chunks())
    filled = data.Y.astype(np.float64)
    filled /= data.unit_scale
    for _ in range(COMPLETION_ROUNDS):
        U, s, Vt = leading_svd(filled, 1.0, chunks, rank, rng)
        # Shrink by the smallest kept value: what a factor takes from noise alone is of about that size.
        shrunk = U * np.maximum(s - s[-1], 0.0)
        change = size = 0.0
        for rows in chunks:
            hole = ~data.observed[rows]
            old, new = filled[rows][hole], (shrunk[rows] @ Vt)[hole]
            change += float(np.sum((new - old) ** 2))
            size += float(np.sum(new**2))
            filled[rows][hole] = new
        if change <= 1e-6 * size:
            break
    return leading_svd(filled, 1.0, chunks, rank, rng)


def random_rotation(K: int, rng: np.random.Generator) -> Array:
    Q, R = np.linalg.qr(rng.standard_normal((K, K)))
    return np.asarray(Q * np.sign(np.diag(R)))


def rotate_randomly(L: Array, rng: np.random.Generator, first: bool) -> Array:
    return random_rotation(L.shape[1], rng)


def rotate_varimax(L: Array, rng: np.random.Generator, first: bool) -> Array:
    """The rotation R for which the squared entries of L R vary most within columns (Kaiser, 1958)."""
    R = np.eye(L.shape[1]) if first else random_rotation(L.shape[1], rng)
    previous = 0.0
    for _ in range(100):
        rotated = L @ R
        square = rotated * rotated
        U, s, Vt = np.linalg.svd(L.T @ (rotated * (square - np.mean(square, axis=0))))
        R = U @ Vt
        if s.sum() <= previous * (1 + 1e-6):
            break
        previous = s.sum()
    return R


def rotate_ica(L: Array, rng: np.random.Generator, first: bool) -> Array:
    """The rotation R for which the columns of whitened L R are least Gaussian (FastICA, all columns at once, tanh)."""
    norms = np.linalg.norm(L, axis=0)
    white = L * np.where(norms > 0, np.sqrt(len(L)) / np.where(norms > 0, norms, 1.0), 0.0)
    R = np.eye(L.shape[1]) if first else random_rotation(L.shape[1], rng)
    for _ in range(100):
        g = np.tanh(white @ R)
        U, _, Vt = np.linalg.svd(white.T @ g / len(L) - R * np.mean(1.0 - g**2, axis=0))
        new = U @ Vt
        moved = 1.0 - np.min(np.abs(np.sum(new * R, axis=0)))
        R = new
        if moved < 1e-4:
            break
    return R


Rotation = Callable[[Array, np.random.Generator, bool], Array]
ROTATIONS: dict[str, Rotation] = {"varimax": rotate_varimax, "ica": rotate_ica, "rotation": rotate_randomly}
INITS = ("auto", "random", *ROTATIONS)
