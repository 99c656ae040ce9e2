"""How a result was made: version, date, seed and settings, as plain values that go into its file and its report."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import Any

from .version import __version__

# Where draws go and what is shown meanwhile does not change the result.
LEFT_OUT = {"callback", "progress", "path", "checkpoint_seconds", "n_jobs", "n_threads", "client"}


def record_of(method: str, options: Any) -> dict[str, Any]:
    """method: "vi" or "mcmc"; options: the dataclass of its settings."""
    settings = {f.name: _plain(getattr(options, f.name)) for f in fields(options) if f.name not in LEFT_OUT}
    return {
        "method": method,
        "version": __version__,
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "settings": settings,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):  # a Start goes by its name
        return [_plain(one) for one in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return value.item()
    return str(getattr(value, "name", type(value).__name__))
