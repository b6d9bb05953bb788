"""The table of commands, and how they end. Imports stay cheap here, so that help comes at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Annotated

import typer

from inout._core.errors import FileError, InoutError, ProgramError
from inout.cli.commands import (
    check,
    context,
    convert,
    demo,
    em,
    evaluate,
    induce,
    parse,
    programs,
    sample,
    solve,
    surprisal,
    warmup,
)
from inout.cli.commands.options import EQUATIONS, FLAG, GRAMMARS, SEQUENCES
from inout.cli.progress import announcing

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

# Arguments that messages of the library name, as the command calls them.
_OPTIONS = {
    "max_edges": "--max-edges",
    "max_rounds": "--max-rounds",
    'duplicates="add"': "--add-duplicates",
    "resume=True": "--resume",
    "max_iterations": "--iterations",
    "checkpoint must be": "--checkpoint must be",
    "form='conll'": "--from conll",
    "`inout.grammars.diagnose`": "`inout check`",
}

app = typer.Typer(
    name="inout",
    help="Exact inference in structured models. Give a grammar and sentences, and get trees, their "
    "probabilities, surprisals, a grammar trained by inside-outside; or write an inside algorithm "
    "as equations, give it facts with weights, and get log Z, the best derivations and expected "
    "counts.",
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
app.command(epilog=solve.EXAMPLES, rich_help_panel=EQUATIONS)(solve.solve)
app.command(epilog=programs.EXAMPLES, rich_help_panel=EQUATIONS)(programs.programs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments (None: those of the process); returns its exit code.

    0 if all went well, 1 if `check` found something wrong, 2 if something given was wrong, which
    one message on stderr tells, 130 after Ctrl-C.
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
        return _complain(_message(error))
    except MemoryError:
        smaller = "a smaller --latent, --size, --max-words or --max-edges needs less"
        return _complain(f"inout: out of memory; {smaller}")
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except (BrokenPipeError, SystemExit) as error:
        # Whoever read our output stopped. typer makes an exit of it, but that is no failure.
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        _close_output()
        return 0
    except OSError as error:
        # Files are read and written with errors of our own, so this is what stdout said.
        _close_output()
        return _complain(f"inout: standard output: {error.strerror or error}")
    except Exception as error:
        # Which class a wrong option raises depends on the version of typer; all have this method.
        if not hasattr(error, "format_message"):
            raise
        message = error.format_message()
        # Without arguments typer shows the help and then an error that says nothing.
        return _complain(f"inout: {message}") if message else 0


def _close_output() -> None:
    """Drop what is still to be written: Python would try, and complain, once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _message(error: InoutError) -> str:
    """The error in the command's words; those about a place in a file begin with the place."""
    text = str(error)
    for argument, option in _OPTIONS.items():
        text = text.replace(argument, option)
    if isinstance(error, FileError | ProgramError):
        return text
    return f"inout: {text}"


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
            metavar=FLAG,
            callback=_show_version,
            is_eager=True,
            help="Show the version.",
        ),
    ] = False,
) -> None:
    pass
