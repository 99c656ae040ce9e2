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
    "First steps: 'sparsefactor fit X.csv --out fit.sf', then 'sparsefactor summary fit.sf' and "
    "'sparsefactor report fit.sf'. Every command has its own --help, with examples.\n\n"
    "Exit codes: 0 done; 1 error; 2 usage error; 3 done, but the result is not reliable yet; 130 interrupted.",
)

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.", show_default=False)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress and no notes.", show_default=False)]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.", show_default=False)]
COMMON: dict[str, Any] = {"json": Json, "quiet": Quiet, "debug": Debug}
# Of commands that write files.
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing files.", show_default=False)]

Words = list[str] | None
READING: dict[str, Any] = {
    "sep": Annotated[str | None, typer.Option(help="Field separator: ',' ';' tab space '|' (found if left out).")],
    "header": Annotated[bool | None, typer.Option("--header/--no-header", help="Whether the first line holds titles.")],
    "index": Annotated[str | None, typer.Option(metavar="COLUMN", help="Column that names the rows, by its title.")],
    "no_index": Annotated[bool, typer.Option("--no-index", help="No column names the rows.", show_default=False)],
    "columns": Annotated[Words, typer.Option(help="Columns to use: titles, or ranges such as A1:O5, with commas.")],
    "drop": Annotated[Words, typer.Option(help="Columns to leave out: titles or ranges, with commas.")],
    "skip": Annotated[int, typer.Option(min=0, help="Lines before the header.", show_default=False)],
    "na": Annotated[Words, typer.Option(help="A spelling of missing beside NA . ? - null NaN; repeatable.")],
    "keep": Annotated[Words, typer.Option(help="A number such as 99 that does not mean missing; repeatable.")],
    "transpose": Annotated[
        bool | None, typer.Option("--transpose/--no-transpose", help="Whether rows are features, columns samples.")
    ],
    "decimal": Annotated[str | None, typer.Option(help="Decimal sign: . or ,")],
    "thousands": Annotated[str | None, typer.Option(help="Thousands separator: , . space or '")],
    "encoding": Annotated[str | None, typer.Option(help="Encoding of a text file (default: UTF-8).")],
    "max_bytes": Annotated[
        int | None, typer.Option(min=1, help="Most bytes that a table may take in memory (default: 2 GB).")
    ],
}
NOT_NONE = {"no_index": False, "skip": 0}  # their defaults
SPELT = {"tab": "\t", "\\t": "\t", "space": " ", "comma": ",", "semicolon": ";", "bar": "|"}


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sparsefactor {sf.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
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
        added: list[tuple[str, Any, Any]] = [("overwrite", Overwrite, False)] if "out" in own.parameters else []
        added += [(option, kind, NOT_NONE.get(option)) for option, kind in READING.items()] if reads else []
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


def _choices(*, sep: str | None, thousands: str | None, index: str | None, no_index: bool, **others: Any) -> Choices:
    if index is not None and no_index:
        raise ValueError("--index and --no-index exclude each other; both were given; pass one of them")
    words: dict[str, Any] = {name: tuple(others.pop(name) or ()) for name in ("columns", "drop", "na", "keep")}
    return Choices(
        sep=SPELT.get(sep or "", sep),
        thousands=SPELT.get(thousands or "", thousands),
        index=False if no_index else index,
        **words,
        **others,
    )


def main() -> None:
    """The entry point."""
    app()
    sys.exit(0)
