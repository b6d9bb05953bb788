"""`inout context train`, `inout context tag` and `inout context curve`."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from inout._core.errors import ArgumentError
from inout.cli.commands.options import FLAG, JsonOption, check_seed, choice, count
from inout.cli.interrupts import uninterrupted

FORMS = ("features", "conll")
METHODS = ("adagrad", "lbfgs")
NO_BOUND = "none"
MOST = 1_000_000  # of any number of labels or contexts: more is a mistake

EXAMPLES = """\
A file has one position a line: its label, a tab, and its features separated by tabs, each with \
:VALUE if that is not 1. A blank line ends a sequence. Files with words and tags in columns \
(--from conll) get the usual features.

[bold]Examples[/bold]

  inout context train train.tsv -o model.ctx
  inout context tag model.ctx new.tsv --confidence
  inout context curve model.ctx test.tsv --html curve.html
"""
TRAIN_EXAMPLES = """\
DATA has one position a line: its label, and behind tabs its features. name:0.5 is a feature with \
another value than 1, and a colon in a name is written \\:. A blank line ends a sequence.

How far labels depend on those before them is chosen for each sequence: the --size likeliest \
histories are remembered, as far as n-grams of --order labels need. All others are still \
considered, with a shorter memory; --beam leaves them out, as beam search does.

[bold]Examples[/bold]

  inout context train train.tsv -o model.ctx
  inout context train train.tsv -o model.ctx --dev dev.tsv --epochs 10
  inout context train train.conll --from conll -o model.ctx --order 3
  inout context train train.tsv -o beam.ctx --beam --size 200
"""
TAG_EXAMPLES = """\
A line of the answer is a label, a tab, and the probability that it is the label of this \
position. The confidence is the probability that all labels of a sequence are right. Labels in \
DATA are ignored, and ? or nothing may stand for them.

[bold]Examples[/bold]

  inout context tag model.ctx new.tsv
  inout context tag model.ctx new.tsv --confidence --at-least 0.9
  inout context tag model.ctx new.tsv --marginals
  inout context tag model.ctx --json < new.tsv
"""
CURVE_EXAMPLES = """\
Sequences are answered in the order of their confidence, the surest first. Precision is the share \
of answers whose labels are all right, recall the share of sequences that are answered.

[bold]Examples[/bold]

  inout context curve model.ctx test.tsv
  inout context curve model.ctx test.tsv --html curve.html --precision 0.95
  inout context curve contexts.ctx test.tsv --also beam.ctx --svg both.svg
"""

app = typer.Typer(
    help="Taggers that know how sure they are: train one, tag sequences with confidences, and see "
    "how precise it is.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    epilog=EXAMPLES,
)

ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="A file that `inout context train` wrote.")
]
FormOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="FORM",
        help="What DATA has: features, or conll (words and tags in columns).",
        show_default="what the model was trained on",
    ),
]
SizeOption = Annotated[
    int | None,
    typer.Option(
        "--size", metavar="N", help="Contexts for each position, instead of the model's number."
    ),
]


@app.command(epilog=TRAIN_EXAMPLES)
def train(
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA", help="Files with tagged sequences, plain, .xz or .gz; - is stdin."
        ),
    ],
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="MODEL", help="Where to write the model.")
    ],
    dev: Annotated[
        str | None,
        typer.Option(
            "--dev",
            metavar="FILE",
            help="Tagged sequences to try each epoch's model on; the best is written.",
        ),
    ] = None,
    order: Annotated[
        int, typer.Option("--order", metavar="N", help="The longest n-grams of labels.")
    ] = 4,
    size: Annotated[
        int, typer.Option("--size", metavar="N", help="Contexts for each position.")
    ] = 10,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            metavar="N",
            help="The most labels that a context remembers; or none: no bound.",
            show_default="what the n-grams need; none with --beam",
        ),
    ] = None,
    beam: Annotated[
        bool, typer.Option("--beam", metavar=FLAG, help="Beam search instead of contexts.")
    ] = False,
    learn_escape: Annotated[
        bool,
        typer.Option(
            "--learn-escape",
            metavar=FLAG,
            help="What falls out of the beam stays possible, at a cost that is learned.",
        ),
    ] = False,
    method: Annotated[
        str,
        typer.Option("--method", metavar="METHOD", help="adagrad (a step a sequence) or lbfgs."),
    ] = METHODS[0],
    epochs: Annotated[
        int,
        typer.Option(
            "--epochs",
            metavar="N",
            help="How often to go through DATA; with lbfgs, how often contexts are selected.",
        ),
    ] = 5,
    step: Annotated[
        float | None,
        typer.Option(
            "--step",
            metavar="X",
            help="The size of AdaGrad's steps.",
            show_default="0.2",
        ),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            "--delta",
            metavar="X",
            help="What AdaGrad adds to the root of sums of squares: more with many rare features.",
            show_default="0.1",
        ),
    ] = None,
    l2: Annotated[
        float | None,
        typer.Option(
            "--l2",
            metavar="X",
            help="The penalty of lbfgs: X/2 times the squares of the weights.",
            show_default="0",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="In which order sequences are seen.")
    ] = 0,
    form: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="FORM",
            help="What DATA has: features, or conll (words and tags in columns).",
        ),
    ] = FORMS[0],
    as_json: JsonOption = False,
) -> None:
    """Train a tagger on tagged sequences. Ctrl-C keeps what finished epochs made."""
    from inout.cli.progress import status

    options: dict[str, Any] = {
        "order": _most("--order", count("--order", order, 1)),
        "size": _size(size),
        "memory": _memory(memory, order, beam),
        "beam": beam,
        "method": choice("--method", method, METHODS),
        "epochs": count("--epochs", epochs, 1),
    }
    check_seed(seed)
    read_as: Any = choice("--from", form, FORMS)
    if learn_escape and not beam:
        raise ArgumentError("--learn-escape needs --beam: contexts leave nothing out")
    if method == "lbfgs":
        _refuse(step, "--step", "is AdaGrad's. Got --method lbfgs")
        _refuse(delta, "--delta", "is AdaGrad's. Got --method lbfgs")
        options["l2"] = _least("--l2", 0.0 if l2 is None else l2, 0)
    else:
        _refuse(l2, "--l2", "needs --method lbfgs. Got --method adagrad")
        options["step"] = _least("--step", 0.2 if step is None else step, 0, above=True)
        options["delta"] = _least("--delta", 0.1 if delta is None else delta, 0, above=True)
    with status() as line:
        from inout.cli.contexts import reading
        from inout.io import check_writable

        if out == reading.STANDARD_INPUT:
            raise ArgumentError("-o must be a file: a model is no text to be printed. Got -")
        check_writable(out)
        files = [*data, *([] if dev is None else [dev])]
        reading.check_files(files)
        reading.refuse_as_output("-o", out, files)
        sequences = reading.read_labelled(data, read_as, line)
        tried = None
        if dev is not None:
            tried = reading.read_labelled([dev], read_as, line)
            reading.need_common_labels(dev, tried, sequences)
        line.say("starting")
        from inout.cli.contexts import training
    made = training.train(
        sequences, tried, seed=seed, form=read_as, learn_escape=learn_escape, **options
    )
    with uninterrupted():
        made.model.save(out)
    if made.stopped is not None:
        print(training.as_stopped(out, made), file=sys.stderr)
    if made.stopped is None or as_json:
        print(training.as_json(out, made) if as_json else training.as_text(out, made))
    if made.stopped is not None:
        raise made.stopped


@app.command(epilog=TAG_EXAMPLES)
def tag(
    model: ModelArgument,
    data: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DATA",
            help="Files with sequences, plain, .xz or .gz; - or none is standard input.",
            show_default=False,
        ),
    ] = None,
    confidence: Annotated[
        bool,
        typer.Option(
            "--confidence",
            metavar=FLAG,
            help="A line # confidence P before each sequence: the probability of its labels.",
        ),
    ] = False,
    marginals: Annotated[
        bool,
        typer.Option(
            "--marginals", metavar=FLAG, help="The probabilities of all labels of a position."
        ),
    ] = False,
    at_least: Annotated[
        float | None,
        typer.Option(
            "--at-least",
            metavar="P",
            help="Sequences of less confidence get ? for each label.",
        ),
    ] = None,
    size: SizeOption = None,
    form: FormOption = None,
    as_json: JsonOption = False,
) -> None:
    """The labels of sequences, with their probabilities."""
    from inout.cli.progress import status

    if at_least is not None:
        _share("--at-least", at_least)
    if size is not None:
        _size(size)
    read_as: Any = None if form is None else choice("--from", form, FORMS)
    files = data or ["-"]
    with status() as line:
        from inout.cli.contexts import reading

        reading.check_files([model, *files])
        line.say(f"reading {model}")
        from inout.cli.contexts import tagging

        loaded = tagging.load(model)
        line.say("tagging")
        found = tagging.begun(loaded, files, read_as or tagging.form_of(loaded), size)
    tagging.print_answers(
        loaded,
        found,
        as_json=as_json,
        confidence=confidence,
        marginals=marginals,
        least=at_least,
    )


@app.command(epilog=CURVE_EXAMPLES)
def curve(
    model: ModelArgument,
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA", help="Files with tagged sequences, plain, .xz or .gz; - is stdin."
        ),
    ],
    precision: Annotated[
        float,
        typer.Option("--precision", metavar="P", help="Say how much can be answered that well."),
    ] = 0.99,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Write a page with the curve.")
    ] = None,
    svg: Annotated[
        str | None, typer.Option("--svg", metavar="FILE", help="Write the curve as a picture.")
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option("--also", metavar="MODEL", help="Another model to compare. Repeatable."),
    ] = None,
    size: SizeOption = None,
    form: FormOption = None,
    as_json: JsonOption = False,
) -> None:
    """How precise a tagger is if it may leave out what it is not sure of."""
    from inout.cli.progress import status

    _share("--precision", precision)
    if size is not None:
        _size(size)
    read_as: Any = None if form is None else choice("--from", form, FORMS)
    models = [model, *(also or [])]
    with status() as line:
        from inout.cli.contexts import reading
        from inout.io import check_writable

        if also and "-" in data:
            raise ArgumentError("DATA must be files where there are several models. Got -")
        reading.check_files([*models, *data])
        for option, path in (("--html", html), ("--svg", svg)):
            if path is not None:
                check_writable(path)
                reading.refuse_as_output(option, path, [*models, *data])
        if html is not None and html == svg:
            raise ArgumentError(f"--html and --svg must be two files. Got {html} for both")
        line.say(f"reading {model}")
        from inout.cli.contexts import curve as report
        from inout.cli.contexts import tagging

        loaded = [(path, tagging.load(path)) for path in models]
    results = [
        report.evaluate(path, one, data, read_as or tagging.form_of(one), size)
        for path, one in loaded
    ]
    report.put(results, precision, as_json=as_json, html=html, svg=svg)


def _memory(given: str | None, order: int, beam: bool) -> int | str | None:
    if given is None:
        return "order"
    if given == NO_BOUND:
        return None
    if beam:
        raise ArgumentError(f"--memory must be none with --beam, which keeps all. Got {given!r}")
    least = max(order - 1, 1)
    if not given.isascii() or not given.isdigit() or int(given) < least:
        raise ArgumentError(
            f"--memory must be an integer of at least {least} (n-grams of order {order} need "
            f"that), or none. Got {given!r}"
        )
    return _most("--memory", int(given))


def _size(given: int) -> int:
    return _most("--size", count("--size", given, 0))


def _most(option: str, given: int) -> int:
    if given > MOST:
        raise ArgumentError(f"{option} must be at most {MOST}. Got {given}")
    return given


def _refuse(given: object, option: str, why: str) -> None:
    if given is not None:
        raise ArgumentError(f"{option} {why}")


def _least(option: str, given: float, least: float, above: bool = False) -> float:
    if not (least < given if above else least <= given) or given == float("inf"):
        words = f"a finite number {'above' if above else 'of at least'} {least:g}"
        raise ArgumentError(f"{option} must be {words}. Got {given}")
    return given


def _share(option: str, given: float) -> float:
    if not 0 <= given <= 1:
        raise ArgumentError(f"{option} must be a probability, from 0 to 1. Got {given}")
    return given
