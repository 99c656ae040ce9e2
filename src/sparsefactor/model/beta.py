"""A Beta prior on inclusion probabilities."""

from __future__ import annotations

from dataclasses import dataclass

from .checks import check_positive

# Under Beta(a, 1) a factor is absent from a group of G features with a probability of about G^-a: with a = 1, one in
# G + 1, so that a factor of one view alone would be next to impossible beforehand; with this, about one in two.
PERHAPS_ABSENT = 0.1


@dataclass(frozen=True)
class Beta:
    """A Beta(a, b) prior on each factor's inclusion probability, which is then learnt.

    Parameters
    ----------
    a, b : float
        Positive. Beta(1, 1), the default of `Prior` without groups, is uniform; Beta(1, 9) expects a tenth of the
        features.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sf.Prior(n_factors=26, inclusion=sf.Beta(1, 9)).learns_inclusion
    True
    """

    a: float
    b: float

    def __post_init__(self) -> None:
        for name in ("a", "b"):
            check_positive(f"Beta's {name}", getattr(self, name))
        mean = self.a / (self.a + self.b)
        if not 0.0 < mean < 1.0:
            raise ValueError(
                f"the mean of a Beta, a / (a + b), must lie strictly between 0 and 1; got {mean:g} from {self.a:g} and "
                f"{self.b:g}; bring a and b closer together"
            )


def learnt_default(several: bool) -> Beta:
    """Of inclusion that is left out; several: whether there are groups, from any of which a factor may be absent."""
    return Beta(PERHAPS_ABSENT if several else 1.0, 1.0)
