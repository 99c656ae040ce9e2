"""An engine for data with a design, its rows on a device."""

from __future__ import annotations

from typing import Any

from ..data import Data
from ..kernels.jax.library import with_64_bits
from ..model import Prior
from .jax_verbs import JaxVerbs
from .pinned import Pinned


class PinnedJaxEngine(Pinned, JaxVerbs):
    """`Engine` of the free factors, around an engine in JAX, whose data it asks for what concerns the directions."""

    inner: Any

    def __init__(self, inner: Any, data: Data, prior: Prior) -> None:
        super().__init__(inner, data, prior)
        self.problem, self.kind = inner.problem, inner.kind

    def asked(self, function: Any, *args: Any, join: int | None = None, **static: Any) -> Any:
        return self.inner.asked(function, *args, join=join, **static)

    def feature_gram(self, seen: Any) -> Any:
        return self.inner.feature_gram(seen)


for _name in ("vi_row_pass", "gibbs_row_pass", "gibbs_shear", "gibbs_rotate", "gibbs_columns"):
    setattr(PinnedJaxEngine, _name, with_64_bits(getattr(PinnedJaxEngine, _name)))
