"""Chains side by side on the device: what all of them wait for at a time is one call.

Each chain has its thread and knows nothing of the others. Where it asks the device for something, it waits until every
chain does; those that ask for the same are then answered by one program, which has a place for each chain of the run,
whoever comes: so the draws do not depend on who met whom.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ..kernels.jax.library import jax, jnp, x64

_here = threading.local()


class Asked:
    """What one chain waits for."""

    def __init__(self, function: Any, shared: Any, args: Any, static: dict[str, Any]) -> None:
        self.function, self.shared, self.args, self.static = function, shared, args, tuple(static.items())
        self.answer: Any = None
        self.problem: BaseException | None = None
        self.done = False

    @property
    def kind(self) -> Any:
        """What those who can be answered together have in common."""
        leaves, structure = jax.tree.flatten(self.args)
        return self.function, id(self.shared[0]), self.static, structure, tuple(jnp.shape(leaf) for leaf in leaves)


class Company:
    """The chains of a run."""

    def __init__(self, size: int) -> None:
        self.size = self.present = size
        self.waiting: list[Asked] = []
        self.changed = threading.Condition()

    @contextmanager
    def member(self) -> Iterator[None]:
        """Around all that a chain does in its thread. Each must come: nobody is answered before all have asked."""
        _here.company = self
        try:
            yield
        finally:
            _here.company = None
            with self.changed:
                self.present -= 1
                self.answer()

    def ask(self, function: Any, shared: Any, args: Any, static: dict[str, Any]) -> Any:
        asked = Asked(function, shared, args, static)
        with self.changed:
            self.waiting.append(asked)
            self.answer()
            while not asked.done:
                self.changed.wait()
        if asked.problem is not None:
            raise asked.problem
        return asked.answer

    def answer(self) -> None:
        """Everyone, if everyone waits."""
        if not self.waiting or len(self.waiting) < self.present:
            return
        groups: dict[Any, list[Asked]] = {}
        for asked in self.waiting:
            groups.setdefault(asked.kind, []).append(asked)
        self.waiting = []
        for group in groups.values():
            first = group[0]
            many = [asked.args for asked in group]
            many += many[:1] * (self.size - len(many))
            try:
                with x64():  # also where it is one who leaves that answers the others
                    answers = together(first.function, first.shared, tuple(many), static=first.static)
            except BaseException as problem:  # it is each chain's own
                for asked in group:
                    asked.problem, asked.done = problem, True
                continue
            for asked, answer in zip(group, answers, strict=False):
                asked.answer, asked.done = answer, True
        self.changed.notify_all()


def beside(function: Any, shared: tuple[Any, ...], args: tuple[Any, ...], **static: Any) -> Any:
    """function(*shared, *args, **static): in company, for all who ask for it with their own args."""
    company: Company | None = getattr(_here, "company", None)
    if company is None:
        return function(*shared, *args, **static)
    if "kind" in static:
        static["kind"] = static["kind"]._replace(in_company=True)
    return company.ask(function, shared, args, static)


@partial(jax.jit, static_argnames=("function", "static"))
def together(function: Any, shared: Any, many: tuple[Any, ...], static: Any) -> tuple[Any, ...]:
    stacked = jax.tree.map(lambda *each: jnp.stack(each), *many)
    found = jax.vmap(lambda args: function(*shared, *args, **dict(static)))(stacked)
    leaves, structure = jax.tree.flatten(found)
    return tuple(jax.tree.unflatten(structure, [leaf[n] for leaf in leaves]) for n in range(len(many)))
