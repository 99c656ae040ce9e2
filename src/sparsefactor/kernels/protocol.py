"""What an engine must provide: passes, moves and verbs, by the shapes of kernels/contract.py (math.md, 4)."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from .contract import (
    Array,
    Climber,
    ColumnNoise,
    ELBOTerms,
    GibbsColumns,
    GibbsRows,
    Message,
    MoveNoise,
    PrecisionNoise,
    RotationNoise,
    RunRule,
    ShearNoise,
    Sums,
    VIColumns,
    VIRows,
)
from .verbs import Verbs


class VIShortcut(Protocol):
    """A whole iteration of VI without Python in between; the equations are those of kernels/columns.py."""

    climbs: bool  # whether it has `climb`
    slides: bool  # whether `finish` takes the columns' slide into the rows' base

    def next_columns(self, rows: VIRows, columns: VIColumns, sums: Sums, rescale: bool) -> tuple[VIColumns, Array]:
        """The column step, each factor at its best scale if asked for, and what the rows are to be multiplied by."""
        ...

    def finish(self, rows: VIRows, columns: VIColumns, scale: Array) -> tuple[VIRows, Sums, ELBOTerms, float]:
        """The row pass, the ELBO's terms and the ELBO."""
        ...

    def climb(
        self, climber: Climber, tolerance: tuple[float, float], keep: float
    ) -> tuple[Climber, bool, list[tuple[int, float]]]:
        """Many accelerated iterations of a trial: its state then, whether it has converged, and the iterations and
        ELBOs on the way. keep: of the momentum after a step that failed (`Trial.step`).
        """
        ...


class Drawn(NamedTuple):
    """The rows and F of a sweep of Gibbs sampling."""

    rows: GibbsRows
    F: Any  # (K, N), where the rows are
    sums: Sums
    largest: float  # of the activations, without sign
    phi: Array  # (K, K) correlations of the factors, or (0,)


class RunStart(NamedTuple):
    """Where many sweeps of Gibbs sampling begin, or have led to."""

    rows: GibbsRows
    F: Array  # (K, N)
    alpha: Array  # (K,)
    rate: Array  # (K,) of inclusion
    logit: Array  # (1 or G, K)
    scale: Array  # (K,) of the rows' loadings
    phi: Array  # (K, K) correlations of the factors, or (0,)


class GibbsShortcut(Protocol):
    """Row pass and activations of a sweep of Gibbs sampling without the host in between."""

    takes_moves: bool  # whether `draw` makes moves first, in the order of `MoveNoise`
    draws_normals: bool  # whether the normals of the activations may be left to it
    runs: bool  # whether it has `run`

    def draw(
        self,
        rows: GibbsRows,
        columns: GibbsColumns,
        key: tuple[int, int],
        sweep: int,
        power: float,
        normal: Any,
        moves: MoveNoise,
    ) -> Drawn:
        """power: of the likelihood; normal: (K, N) standard normals, or None for the engine's own, by counter."""
        ...

    def run(self, start: RunStart, rule: RunRule, key: tuple[int, int], rng: Any) -> tuple[RunStart, float]:
        """Many sweeps by a rule, from one generator: where they lead, and the largest activation there."""
        ...


class Engine(Verbs, Protocol):
    """An engine: built for one data set and prior, asked for one pass at a time. Inputs are never modified."""

    def vi_row_pass(self, rows: VIRows, message: Message) -> tuple[VIRows, Sums]:
        """Under a prior with modules, that of 3.17: rows and message then have what belongs to modules."""
        ...

    def vi_shortcut(self, joint: bool) -> VIShortcut | None:
        """Where this engine has one for its data and prior."""
        ...

    def vi_activations(self, columns: VIColumns, sums: Sums, weight: Array) -> tuple[Array, Array]:
        """New (f_mean, f_var); weight: (N,) column precisions (ones for noise="feature")."""
        ...

    def gibbs_shortcut(self) -> GibbsShortcut | None:
        """Where this engine has one for its data and prior."""
        ...

    def gibbs_row_pass(self, rows: GibbsRows, message: Message, noise: Any) -> tuple[GibbsRows, Sums]:
        """`noise` is what this engine's `row_noise` made."""
        ...

    def gibbs_activations(self, sums: Sums, weight: Array, prior: Array, normal: Array) -> Array:
        """A draw of F, (K, N), from standard normals (K, N); prior: (K, K) Phi^-1."""
        ...

    def gibbs_shear(self, rows: GibbsRows, columns: GibbsColumns, noise: ShearNoise) -> tuple[GibbsRows, Array, Array]:
        """New rows, F (K, N) and phi after shears (2.11). As after every move, the rows' scale is one."""
        ...

    def gibbs_rotate(
        self, rows: GibbsRows, columns: GibbsColumns, noise: RotationNoise
    ) -> tuple[GibbsRows, Array, Array, Array]:
        """New rows, F (K, N), alpha (K, V?) and phi after rotations (2.10)."""
        ...

    def gibbs_columns(
        self, rows: GibbsRows, columns: GibbsColumns, noise: ColumnNoise
    ) -> tuple[GibbsRows, Array, Array]:
        """New rows, alpha (K, V?) and logit (1, V or G, K), which changes where rates are learnt (2.15)."""
        ...

    def gibbs_precisions(
        self, rows: GibbsRows, columns: GibbsColumns, noise: PrecisionNoise
    ) -> tuple[GibbsRows, Array]:
        """New rows (tau, and loose factors' z and l) and F (K, N), of data with noise by feature (2.17)."""
        ...

    def row_noise(self, key: tuple[int, int], sweep: int) -> Any:
        """The randomness of this sweep's row pass for the stream `key`."""
        ...
