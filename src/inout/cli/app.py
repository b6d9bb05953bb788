"""The table of commands and their exit codes. Imports stay cheap here: help must be instant."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Annotated

import typer

from inout._core.errors import InoutError
from inout.cli import messages
from inout.cli.commands import (
    align,
    check,
    context,
    convert,
    demo,
    em,
    evaluate,
    fit,
    induce,
    parse,
    programs,
    sample,
    solve,
    surprisal,
    warmup,
)
from inout.cli.commands.options import EQUATIONS, GRAMMARS, SEQUENCES
from inout.cli.progress import announcing

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="inout",
    help="Exact inference in structured models. From a grammar and sentences: trees and their "
    "probabilities, surprisals, grammars trained by inside-outside. From an inside algorithm "
    "written as equations and weighted facts: log Z, best derivations, expected counts.",
    epilog="""[bold]Examples[/bold]

  inout demo
  inout parse english --sentence "time flies like an arrow"
  inout em GRAMMAR SENTENCES -o TRAINED.cfg
  inout solve PROGRAM --facts NAME=FILE.tsv
""",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command(epilog=demo.EXAMPLES)(demo.demo)
app.command(epilog=warmup.EXAMPLES)(warmup.warmup)
for module, command in (
    (parse, parse.parse),
    (surprisal, surprisal.surprisal),
    (sample, sample.sample),
    (em, em.em),
    (induce, induce.induce),
    (check, check.check),
    (convert, convert.convert),
):
    app.command(epilog=module.EXAMPLES, rich_help_panel=GRAMMARS)(command)
app.command("eval", epilog=evaluate.EXAMPLES, rich_help_panel=GRAMMARS)(evaluate.evaluate)
app.add_typer(context.app, name="context", rich_help_panel=SEQUENCES)
app.command(epilog=align.EXAMPLES, rich_help_panel=SEQUENCES)(align.align)
app.command(epilog=solve.EXAMPLES, rich_help_panel=EQUATIONS)(solve.solve)
app.command(epilog=fit.EXAMPLES, rich_help_panel=EQUATIONS)(fit.fit)
app.command(epilog=programs.EXAMPLES, rich_help_panel=EQUATIONS)(programs.programs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments (default: sys.argv) and return its exit code.

    0 on success; 1 if `check` found a problem; 2 on bad input, with one message on stderr; 130 on
    Ctrl-C.
    """
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal cannot show must not end the program.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        given = None if arguments is None else list(arguments)
        with announcing():
            code = int(app(given, prog_name="inout", standalone_mode=False) or 0)
        sys.stdout.flush()
        return code
    except InoutError as error:
        return _complain(messages.message(error))
    except MemoryError:
        return _complain(messages.from_command(messages.OUT_OF_MEMORY))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except (BrokenPipeError, SystemExit) as error:
        # The reader closed the pipe. typer turns that into an exit, but it is not a failure.
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        _close_output()
        return 0
    except OSError as error:
        # Errors of other files are our own classes, so this one comes from stdout.
        _close_output()
        return _complain(messages.from_command(f"standard output: {error.strerror or error}"))
    except Exception as error:
        # The class raised for a bad option depends on typer's version; all have this method.
        if not hasattr(error, "format_message"):
            raise
        message = error.format_message()
        # Without arguments typer shows the help and then raises an error with no message.
        return _complain(messages.from_command(message)) if message else 0


def _close_output() -> None:
    """Discard pending output: Python would try to flush it, and fail, once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(message: str) -> int:
    print(message, file=sys.stderr)
    return EXIT_BAD_INPUT


def _show_version(wanted: bool) -> bool:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"inout {version('inout')}")
        except PackageNotFoundError:
            print("inout (not installed)")
        raise typer.Exit
    return wanted


@app.callback()
def _inout(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            metavar=" ",
            callback=_show_version,
            is_eager=True,
            help="Print the version.",
        ),
    ] = False,
) -> None:
    pass
