"""The application: what its commands share, and how they end."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer

import sparsefactor as sf

from ..reading import Choices
from . import console
from .console import FAILED, INTERRUPTED
from .spelling import as_options

EXPECTED = (ValueError, TypeError, OSError, ImportError, RuntimeError, MemoryError)
EXAMPLES: list[tuple[str, ...]] = []  # as in the help, command by command; a test runs them

app = typer.Typer(
    name="sparsefactor",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Bayesian sparse factor analysis.\n\n"
    "First steps: 'sparsefactor fit X.csv --factors 6 --out fit.sf', then 'sparsefactor summary fit.sf' and "
    "'sparsefactor report fit.sf'. Every command has its own --help, with examples.\n\n"
    "Exit codes: 0 done; 1 an error; 2 a command that cannot be read; 3 done, but the result is not to be trusted yet; "
    "130 interrupted.",
)

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for a program.", show_default=False)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing on the way.", show_default=False)]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error came from.", show_default=False)]
COMMON: dict[str, Any] = {"json": Json, "quiet": Quiet, "debug": Debug}
# Of commands that write files.
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.", show_default=False)]

Words = list[str] | None
READING: dict[str, Any] = {
    "sep": Annotated[str | None, typer.Option(help="What parts fields: ',' ';' tab space ... Found if left out.")],
    "header": Annotated[bool | None, typer.Option("--header/--no-header", help="The first line holds names.")],
    "index": Annotated[bool | None, typer.Option("--index/--no-index", help="The first column holds names.")],
    "na": Annotated[Words, typer.Option(help="A spelling of missing beside NA . ? - null NaN; repeatable.")],
    "transpose": Annotated[bool | None, typer.Option("--transpose/--no-transpose", help="Lines are features.")],
    "decimal": Annotated[str | None, typer.Option(help="The decimal sign, . or ,")],
    "thousands": Annotated[str | None, typer.Option(help="What parts thousands: , . space or '")],
    "encoding": Annotated[str | None, typer.Option(help="Of a text file; UTF-8 if left out.")],
    "drop": Annotated[Words, typer.Option(help="A column to leave out, by its title; repeatable.")],
    "max_bytes": Annotated[int | None, typer.Option(min=1, help="What a table may take in memory; 2 GB if left out.")],
}
SPELT = {"tab": "\t", "\\t": "\t", "space": " ", "comma": ",", "semicolon": ";"}


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sparsefactor {sf.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    pass


def command(*examples: str, reads: bool = False) -> Any:
    """Make a function a command: with --json, --quiet and --debug, with examples, and with errors of one line.

    reads: it reads a table; the options that say how become its argument `choices`.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(**given: Any) -> None:
            for option in ("overwrite", *COMMON):
                setattr(console.settings, option, given.pop(option, False))
            how = {option: given.pop(option) for option in READING} if reads else {}
            _run(function, given, how)

        own = inspect.signature(function, eval_str=True)
        added: list[tuple[str, Any, bool | None]] = [("overwrite", Overwrite, False)] if "out" in own.parameters else []
        added += [(option, kind, None) for option, kind in READING.items()] if reads else []
        more = [
            inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for option, kind, default in (*added, *((option, kind, False) for option, kind in COMMON.items()))
        ]
        parameters = [
            p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own.parameters.values() if p.name != "choices"
        ]
        run.__signature__ = own.replace(parameters=[*parameters, *more])  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in (*parameters, *more)} | {"return": None}
        EXAMPLES.append(examples)
        shown = "\n\n".join(["Examples:", *(f"  {line}" for line in examples)])
        app.command(epilog=shown)(run)
        return function

    return decorate


def _run(function: Callable[..., Any], given: dict[str, Any], how: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: console.warn(as_options(f"Warning: {message}"))
        warnings.filterwarnings("default", category=UserWarning, module=r"sparsefactor")
        try:
            function(**given, **({"choices": _choices(**how)} if how else {}))
        except (typer.Exit, typer.Abort):
            raise
        except KeyboardInterrupt:
            console.warn("Interrupted.")
            raise typer.Exit(INTERRUPTED) from None
        except EXPECTED as problem:
            if console.settings.debug:
                raise
            console.fail(as_options(" ".join(str(problem).split())) or type(problem).__name__)
            raise typer.Exit(FAILED) from None


def _choices(
    sep: str | None, thousands: str | None, na: list[str] | None, drop: list[str] | None, **others: Any
) -> Choices:
    others["thousands"] = SPELT.get(thousands or "", thousands)
    return Choices(sep=SPELT.get(sep or "", sep), na=tuple(na or ()), drop=tuple(drop or ()), **others)


def main() -> None:
    """The entry point."""
    app()
    sys.exit(0)
