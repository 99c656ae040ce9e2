"""Safeguarded acceleration of CAVI: momentum on the activations, kept only where the ELBO rises (math.md, 3.13).

Left alone, CAVI drifts for hundreds of iterations along directions in which L and F trade places and only a few
inclusions decide; each iteration takes a small step the same way. Nesterov's momentum lengthens such steps. The
extrapolated activations are only a starting value of the row pass, so the ELBO computed after it is exact, and a step
that would lower it is thrown away in favour of the plain one, which cannot, and momentum starts again along a fresh
direction, a little shorter than it was: from nothing, it would need a dozen iterations to be of use again.
"""

from __future__ import annotations

import numpy as np

from ..kernels.contract import Array

KEPT = 0.85  # of the sequence's place after a restart


class Momentum:
    """Nesterov's sequence of extrapolations with restart."""

    def __init__(self) -> None:
        self.t = 1.0
        self.previous: Array | None = None

    def reset(self) -> None:
        """Forget the direction: the last step overshot, or the factors changed places."""
        self.t, self.previous = max(1.0, KEPT * self.t), None

    def propose(self, image: Array) -> Array | None:
        """Activations beyond `image`, the plain step's, along the way from the last one; None at a fresh start."""
        t = (1.0 + np.sqrt(1.0 + 4.0 * self.t**2)) / 2.0
        previous, self.previous = self.previous, image
        weight, self.t = (self.t - 1.0) / t, t
        if previous is None or weight == 0.0:
            return None
        return image + weight * (image - previous)
