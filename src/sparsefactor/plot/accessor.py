"""`p.plot`: the functions of `sf.plot` as methods of a result."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any


class Plots:
    """The functions of `sf.plot` with a result as their first argument."""

    def __init__(self, p: Any) -> None:
        self._p = p

    def __getattr__(self, name: str) -> Callable[..., Any]:
        from . import DATA_KINDS, KINDS

        known: Any = {**KINDS, **DATA_KINDS}
        if name not in known:
            raise AttributeError(f"plot must be one of {', '.join(known)}; got {name!r}; choose one of them")
        return update_wrapper(partial(known[name], self._p), known[name])

    def __dir__(self) -> list[str]:
        from . import DATA_KINDS, KINDS

        return [*KINDS, *DATA_KINDS]

    def __repr__(self) -> str:
        return f"Plots: {', '.join(dir(self))}"
