"""An attribute that is computed when it is first asked for, without a lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class computed(Generic[T]):  # noqa: N801 - it reads as `property` does
    """As `functools.cached_property`, which before Python 3.12 holds a lock of the whole class while it computes.

    A process that forks meanwhile leaves that lock to its child for ever. Here two threads that ask at the same time
    both compute, and both get the value that was there first.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute, self.name, self.__doc__ = compute, compute.__name__, compute.__doc__

    @overload
    def __get__(self, instance: None, owner: Any) -> computed[T]: ...
    @overload
    def __get__(self, instance: object, owner: Any) -> T: ...
    def __get__(self, instance: Any, owner: Any) -> Any:
        if instance is None:
            return self
        # The instance's own attribute hides this one from now on, also where a frozen dataclass refuses assignment.
        return vars(instance).setdefault(self.name, self.compute(instance))
