"""`inout context train`, `inout context tag` and `inout context curve`."""

from __future__ import annotations

import sys
from typing import Any

import typer

from inout._core.checks import expect
from inout._core.errors import ArgumentError
from inout.cli import files
from inout.cli.commands import options as opt
from inout.cli.files import STANDARD_INPUT
from inout.cli.progress import status, uninterrupted

FORMS = ("features", "conll")
METHODS = ("adagrad", "lbfgs")
ORDERINGS = ("left-to-right", "right-to-left", "middle-out")  # those of `inout.contexts`
NO_BOUND = "none"
MOST = 1_000_000  # labels or contexts: more is a mistake
MOST_THREADS = 1024

EXAMPLES = """\
Files have one position per line: its label and its features, separated by tabs. Write NAME:VALUE \
for a feature whose value is not 1. A blank line ends a sequence. Files with words and tags in \
columns (--from conll) get standard features.

[bold]Examples[/bold]

  inout context train train.tsv -o model.ctx
  inout context tag model.ctx new.tsv --confidence
  inout context curve model.ctx test.tsv --html curve.html
"""
TRAIN_EXAMPLES = """\
DATA has one position per line: its label and its features, separated by tabs. name:0.5 is a \
feature whose value is not 1; escape a colon in a name as \\:. A blank line ends a sequence.

How far back a label looks is chosen for each sequence: the --size likeliest histories are \
remembered, as far as n-grams of --order labels need. All others are still considered, with a \
shorter memory; --beam drops them, as beam search does.

[bold]Examples[/bold]

  inout context train train.tsv -o model.ctx
  inout context train train.tsv -o model.ctx --dev dev.tsv --epochs 10
  inout context train train.conll --from conll -o model.ctx --order 3
  inout context train train.tsv -o beam.ctx --beam --size 200
  inout context train train.tsv -o model.ctx --ordering right-to-left
  inout context train train.tsv -o model.ctx --threads 8 --truncate 0.001
"""
TAG_EXAMPLES = """\
Each line of output is a label, a tab, and the probability of that label at this position. The \
confidence of a sequence is the probability that all of its labels are right. Labels in DATA are \
ignored, and may be ? or missing.

[bold]Examples[/bold]

  inout context tag model.ctx new.tsv
  inout context tag model.ctx new.tsv --confidence --at-least 0.9
  inout context tag model.ctx new.tsv --marginals
  inout context tag model.ctx --json < new.tsv
"""
CURVE_EXAMPLES = """\
Sequences are ranked by confidence. Precision is the share of answered sequences whose labels are \
all right, recall the share of sequences that are answered.

[bold]Examples[/bold]

  inout context curve model.ctx test.tsv
  inout context curve model.ctx test.tsv --html curve.html --precision 0.95
  inout context curve contexts.ctx test.tsv --also beam.ctx --svg both.svg
"""

app = typer.Typer(
    help="Taggers that report their confidence: train one, tag sequences, measure its precision.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    epilog=EXAMPLES,
)

MODEL = opt.argument("MODEL", "Model from `inout context train`.")
_FORM = "Format of DATA: features, or conll (words and tags in columns)."
FORM = opt.option("--from", "FORM", _FORM, shown="as in training")
SIZE = opt.option("--size", "N", "Contexts per position, instead of the model's number.")


@app.command(epilog=TRAIN_EXAMPLES)
def train(
    data: list[str] = opt.TAGGED,
    out: str = opt.option("--out -o", "MODEL", "Where to write the model.", ...),
    dev: str | None = opt.option(
        "--dev", "FILE", "Labelled sequences for choosing the best epoch."
    ),
    order: int = opt.option("--order", "N", "Length of the longest n-grams of labels.", 4),
    size: int = opt.option("--size", "N", "Contexts per position.", 10),
    memory: str | None = opt.option(
        "--memory",
        "N",
        "Maximum labels that a context remembers; none for no limit.",
        shown="what the n-grams need; none with --beam",
    ),
    ordering: str = opt.option(
        "--ordering",
        "NAME",
        "Order in which positions get their labels: left-to-right, right-to-left or middle-out.",
        ORDERINGS[0],
    ),
    beam: bool = opt.flag("--beam", "Beam search instead of contexts."),
    learn_escape: bool = opt.flag(
        "--learn-escape", "With --beam: pruned histories stay possible, at a learned cost."
    ),
    method: str = opt.option(
        "--method", "METHOD", "adagrad (one step per sequence) or lbfgs.", METHODS[0]
    ),
    epochs: int = opt.option(
        "--epochs", "N", "Passes over DATA; with lbfgs, selections of contexts.", 5
    ),
    step: float | None = opt.option("--step", "X", "Step size of AdaGrad.", shown="0.2"),
    delta: float | None = opt.option(
        "--delta",
        "X",
        "Added to AdaGrad's root of summed squares; more helps with many rare features.",
        shown="0.1",
    ),
    l2: float | None = opt.option(
        "--l2", "X", "L2 penalty of lbfgs: X/2 times the squared weights.", shown="0"
    ),
    threads: int = opt.option(
        "--threads", "N", "Threads of adagrad; with more than one, results vary from run to run.", 1
    ),
    truncate: float = opt.option(
        "--truncate",
        "X",
        "Round gradients below X at random to 0 or X, unbiased: fewer weights, less memory.",
        0.0,
    ),
    seed: int = opt.option("--seed", "N", "Seed for shuffling the sequences.", 0),
    form: str = opt.option("--from", "FORM", _FORM, FORMS[0]),
    as_json: bool = opt.JSON,
) -> None:
    """Train a tagger on labelled sequences. Ctrl-C keeps the result of completed epochs."""
    options: dict[str, Any] = {
        "order": opt.count("--order", order, 1, MOST),
        "size": opt.count("--size", size, 0, MOST),
        "memory": _memory(memory, order, beam),
        "ordering": opt.choice("--ordering", ordering, ORDERINGS),
        "beam": beam,
        "method": opt.choice("--method", method, METHODS),
        "epochs": opt.count("--epochs", epochs, 1),
    }
    opt.check_seed(seed)
    read_as: Any = opt.choice("--from", form, FORMS)
    if learn_escape and not beam:
        raise ArgumentError("--learn-escape", "needs --beam: contexts drop nothing")
    if method == "lbfgs":
        others = {"--threads": threads > 1 or None, "--truncate": truncate or None}
        adagrad = {"--step": step, "--delta": delta} | others
        opt.refuse(adagrad, "needs --method adagrad. Got lbfgs")
        options["l2"] = _finite("--l2", 0.0 if l2 is None else l2)
    else:
        opt.refuse({"--l2": l2}, "needs --method lbfgs. Got adagrad")
        options["step"] = _finite("--step", 0.2 if step is None else step, above=True)
        options["delta"] = _finite("--delta", 0.1 if delta is None else delta, above=True)
        options["threads"] = opt.count("--threads", threads, 1, MOST_THREADS)
        options["truncate"] = _finite("--truncate", truncate)
    with status() as line:
        from inout.cli.contexts import reading

        if out == STANDARD_INPUT:
            raise ArgumentError("-o", "must be a file: a model is not text to print. Got -")
        given = [*data, *([] if dev is None else [dev])]
        files.check_inputs(given)
        files.check_output("-o", out, given)
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
    model: str = MODEL,
    data: list[str] | None = opt.argument(
        "DATA", "Files of sequences, plain, .xz or .gz. Default: stdin.", None
    ),
    confidence: bool = opt.flag(
        "--confidence", "Print a line # confidence P before each sequence."
    ),
    marginals: bool = opt.flag(
        "--marginals", "Print the probabilities of all labels at each position."
    ),
    at_least: float | None = opt.option(
        "--at-least", "P", "Print ? for the labels of less confident sequences."
    ),
    size: int | None = SIZE,
    form: str | None = FORM,
    as_json: bool = opt.JSON,
) -> None:
    """Label sequences, with probabilities."""
    if at_least is not None:
        opt.share("--at-least", at_least)
    if size is not None:
        opt.count("--size", size, 0, MOST)
    read_as = opt.optional_choice("--from", form, FORMS)
    given = data or [STANDARD_INPUT]
    with status() as line:
        files.check_inputs([model, *given])
        line.say(f"reading {model}")
        from inout.cli.contexts import tagging

        loaded = tagging.load(model)
        line.say("tagging")
        found = tagging.begun(loaded, given, read_as or tagging.form_of(loaded), size)
    tagging.print_answers(
        loaded, found, as_json=as_json, confidence=confidence, marginals=marginals, least=at_least
    )


@app.command(epilog=CURVE_EXAMPLES)
def curve(
    model: str = MODEL,
    data: list[str] = opt.TAGGED,
    precision: float = opt.option("--precision", "P", "Report the recall at this precision.", 0.99),
    html: str | None = opt.option("--html", "FILE", "Write a page with the curve."),
    svg: str | None = opt.option("--svg", "FILE", "Write the curve as SVG."),
    also: list[str] | None = opt.option("--also", "MODEL", "Another model to compare. Repeatable."),
    size: int | None = SIZE,
    form: str | None = FORM,
    as_json: bool = opt.JSON,
) -> None:
    """Measure a tagger's precision when it may skip sequences that it is unsure of."""
    opt.share("--precision", precision)
    if size is not None:
        opt.count("--size", size, 0, MOST)
    read_as = opt.optional_choice("--from", form, FORMS)
    models = [model, *(also or [])]
    with status() as line:
        if also and STANDARD_INPUT in data:
            raise ArgumentError("DATA", "must be files if there are several models. Got -")
        files.check_inputs([*models, *data])
        for name, path in (("--html", html), ("--svg", svg)):
            files.check_output(name, path, [*models, *data])
        if html is not None and html == svg:
            raise ArgumentError(None, f"--html and --svg must be different files. Got {html} twice")
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
    expect(not beam, "--memory", "must be none with --beam, which remembers all", given)
    least = max(order - 1, 1)
    if not given.isascii() or not given.isdigit() or int(given) < least:
        raise ArgumentError(
            "--memory",
            f"must be an integer of at least {least}, which n-grams of order {order} need, or "
            f"none. Got {given!r}",
        )
    return opt.count("--memory", int(given), least, MOST)


def _finite(name: str, given: float, above: bool = False) -> float:
    """Check that `given` is finite and at least, or above, 0; return it."""
    if not (given > 0 if above else given >= 0) or given == float("inf"):
        words = f"a finite number {'above' if above else 'of at least'} 0"
        raise ArgumentError(name, f"must be {words}. Got {given}")
    return given
