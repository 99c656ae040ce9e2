"""Errors that any module may raise."""

from __future__ import annotations


def needs(what: str, library: str, extra: str, problem: ImportError) -> ImportError:
    """One line for a library that an extra brings; pip adds an extra to an installed package from anywhere."""
    return ImportError(
        f"{what} needs {library}, which cannot be imported ({problem}); "
        f'install it with: pip install "sparsefactor[{extra}]"'
    )


class TooLargeError(ValueError):
    """A file that would take more memory than its reader allows."""
