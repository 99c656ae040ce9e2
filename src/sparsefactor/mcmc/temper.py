"""The power of the likelihood while a chain warms up from a random start (math.md, 2.12)."""

from __future__ import annotations

FIRST_POWER = 0.1  # low enough that factors form and dissolve, high enough that they form at all
SHARE = 0.5  # of the warm-up; the rest runs at power 1


def power(sweep: int, n_warmup: int) -> float:
    """Rises geometrically from FIRST_POWER to 1 over the first share of the warm-up."""
    end = SHARE * n_warmup
    return 1.0 if sweep >= end else float(FIRST_POWER ** (1.0 - sweep / end))
