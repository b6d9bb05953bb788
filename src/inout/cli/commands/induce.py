"""`inout induce`: a grammar, or a latent model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from inout._core.checks import expect
from inout._core.errors import ArgumentError
from inout.cli.commands import options as opt
from inout.cli.files import check_output
from inout.cli.progress import status

EXAMPLES = """Function tags and traces are removed and trees are binarised. Rare words share their \
counts with classes of unknown words (UNK-LC-ed), which stand for words that the grammar does not \
know.

With --latent N each label has up to N latent values, learned by moments (--method spectral, one \
pass) or by EM on the trees (--method em). --latent 8,NP=24,DT=4 names labels that have other \
numbers; --latent auto takes as many as a label has singular values above a tenth of its largest, \
at most 32. With --sentences, EM goes on with sentences that have no trees. The model is not a \
text file; `inout parse --model` reads it.

[bold]Examples[/bold]

  inout induce train.mrg -o grammar.json
  inout induce train.mrg -o grammar.json --horizontal 1 --vertical 1 --unknown-threshold 2
  inout parse grammar.json dev.txt --restore --format bracketed > parses.mrg
  inout induce train.mrg --latent 16 -o model.lpcfg
  inout induce train.mrg --latent auto -o model.lpcfg
  inout induce train.mrg --latent 4 --method em --sentences more.txt -o model.lpcfg
  inout induce train.mrg --latent 16 --method em --em-start split --iterations 20 -o model.lpcfg
  inout parse --model model.lpcfg dev.txt --format bracketed > parses.mrg
"""
ALL = "all"
METHODS = ("spectral", "em")
ESTIMATORS = ("shrunk", "paper")
STARTS = ("split", "random", "spectral")
latent_option = partial(opt.option, panel="Latent models")
SHARE, ROOT = 0.5, "TOP"
ITERATIONS = 50  # as in `inout.learning.latent_grammars`


def induce(
    treebanks: list[str] = opt.argument(
        "TREEBANK", "Files of trees in brackets, plain, .xz or .gz; - is stdin."
    ),
    out: str | None = opt.option(
        "--out -o", "FILE", "Output file. Default: stdout, not with --latent."
    ),
    to: str | None = opt.TO,
    horizontal: str | None = opt.option(
        "--horizontal",
        "N",
        "Horizontal order: number of siblings that binarised nodes remember, or all.",
        shown="2; 0 with --latent",
    ),
    vertical: int | None = opt.option(
        "--vertical",
        "N",
        "Vertical order: 1 for plain labels, 2 to remember the parent.",
        shown="2; 1 with --latent",
    ),
    left: bool = opt.flag("--left", "Binarise from the left."),
    nary: bool = opt.flag("--nary", "Do not binarise."),
    tags: bool = opt.flag("--tags", "Annotate part-of-speech tags with their parents too."),
    unknown_threshold: int = opt.option(
        "--unknown-threshold", "N", "Words seen at most N times are rare.", 1
    ),
    unknown_share: float | None = opt.option(
        "--unknown-share",
        "X",
        "Share of a rare word's count given to its class, from 0 to 1.",
        shown=str(SHARE),
    ),
    start: str | None = opt.option("--start", "SYMBOL", "Label of the root.", shown=ROOT),
    raw: bool = opt.flag("--raw", "Keep function tags and traces."),
    latent: str | None = latent_option(
        "--latent",
        "N",
        "Train a model with up to N latent values per label; N,LABEL=N,… for some labels by "
        "name, or auto.",
    ),
    method: str | None = latent_option(
        "--method",
        "METHOD",
        "spectral (moments, one pass) or em (likelihood of the trees).",
        shown=METHODS[0],
    ),
    estimator: str | None = latent_option(
        "--estimator",
        "NAME",
        "Of --method spectral: shrunk, or paper (Cohen et al. 2012 to the letter).",
        shown=ESTIMATORS[0],
    ),
    em_start: str | None = latent_option(
        "--em-start",
        "START",
        "Starting point of EM: split (double the values repeatedly), random, or spectral "
        "(clusters of the vectors of --method spectral).",
        shown=STARTS[0],
    ),
    iterations: int | None = latent_option(
        "--iterations", "N", "Maximum EM iterations, per split or in total.", shown=str(ITERATIONS)
    ),
    restarts: int | None = latent_option(
        "--restarts",
        "N",
        "With --em-start random: start from N more points, and keep the best.",
        shown="0",
    ),
    sentences: str | None = latent_option(
        "--sentences", "FILE", "Sentences without trees, one per line, that EM goes on with."
    ),
    sentence_weight: float | None = latent_option(
        "--sentence-weight", "X", "How much a sentence counts, where a tree counts 1.", shown="1"
    ),
    seed: int | None = latent_option("--seed", "N", "Random seed.", shown="always the same"),
) -> None:
    """Read a grammar off a treebank, with Markovisation; or train a latent model on it."""
    siblings = _siblings(horizontal or ("2" if latent is None else "0"))
    generations = vertical if vertical is not None else 2 if latent is None else 1
    opt.count("--vertical", generations, 1)
    opt.count("--unknown-threshold", unknown_threshold, 0)
    orders = {"horizontal": siblings, "vertical": generations}
    about: dict[str, Any] = orders | {"direction": "left" if left else "right"}
    of_em: dict[str, Any] = {
        "--em-start": em_start,
        "--iterations": iterations,
        "--restarts": restarts,
    }
    of_em |= {"--sentences": sentences, "--sentence-weight": sentence_weight}
    if latent is None:
        opt.refuse(
            {"--method": method, "--estimator": estimator, "--seed": seed} | of_em,
            "is for latent models: it needs --latent N",
        )
        rare = opt.share("--unknown-share", SHARE if unknown_share is None else unknown_share)
        options: dict[str, Any] = {"unknown_threshold": unknown_threshold, "unknown_share": rare}
        options |= {"start": ROOT if start is None else start, "clean": not raw}
        about |= {"tags": tags, "binary": not nary}
        _induce_grammar(
            treebanks, out, opt.optional_choice("--to", to, opt.FORMATS), about, options
        )
        return
    of_grammars = {"--to": to, "--nary": nary, "--tags": tags, "--unknown-share": unknown_share}
    opt.refuse(of_grammars | {"--start": start, "--raw": raw}, "cannot be used with --latent")
    if out is None or out == "-":
        raise ArgumentError("--latent", "needs -o FILE: a model is not text to print")
    values = _values(latent)
    opt.check_seed(seed)
    way = opt.choice("--method", method or METHODS[0], METHODS)
    if way == "em":
        opt.refuse({"--estimator": estimator}, "needs --method spectral. Got --method em")
        options = _em_options(of_em)
    else:
        opt.refuse(of_em, f"needs --method em. Got --method {way}")
        options = {"estimator": opt.choice("--estimator", estimator or ESTIMATORS[0], ESTIMATORS)}
    training = {"latent": values, "method": way, "seed": seed, "options": options}
    _induce_latent(treebanks, out, about, unknown_threshold, training)


def _induce_grammar(
    treebanks: Sequence[str],
    out: str | None,
    format: str | None,
    markovisation: dict[str, Any],
    options: dict[str, Any],
) -> None:
    with status() as line:
        from inout.cli.grammars.output import output_format, put_grammar, read_treebanks
        from inout.grammars.grammar import Grammar
        from inout.grammars.markovisation import Markovisation

        target = output_format(out, format, default="json")
        check_output("-o", out, treebanks)
        trees = read_treebanks(treebanks, line)
        made = Grammar.from_treebank(trees, Markovisation(**markovisation), **options)
        line.say("writing")
        text = made.to_text(target)
    put_grammar(out, text, made)


def _induce_latent(
    treebanks: Sequence[str],
    out: str,
    markovisation: dict[str, Any],
    unknown_threshold: int,
    training: dict[str, Any],
) -> None:
    from time import monotonic

    began = monotonic()
    with status() as line:
        from inout.cli.grammars.output import read_treebanks

        check_output("-o", out, treebanks)
        _read_sentences(training["options"])
        trees = read_treebanks(treebanks, line)
        from inout.cli.grammars.induce_latent import put_model, train
        from inout.grammars.markovisation import Markovisation
        from inout.latent.grammar import TrainingSet

        given = Markovisation(**markovisation)
        data = TrainingSet.of(trees, given, unknown_threshold=unknown_threshold)
    about = markovisation | {"unknown_threshold": unknown_threshold}
    made = train(data, **training, about=about)
    put_model(out, made, began)


def _read_sentences(options: dict[str, Any]) -> None:
    """Put the words of the file of sentences in its place."""
    if "sentences" in options:
        from inout.cli.grammars.loading import read_sentences

        lines = read_sentences([options["sentences"]], [])
        options["sentences"] = [line.words for line in lines]


def _em_options(given: dict[str, Any]) -> dict[str, Any]:
    """The options of `fit_latent_grammar` for EM."""
    start = opt.choice("--em-start", given["--em-start"] or STARTS[0], STARTS)
    iterations, restarts = given["--iterations"], given["--restarts"]
    if start != "random":
        opt.refuse({"--restarts": restarts}, f"needs --em-start random. Got {start}")
    found = {
        "start": start,
        "iterations": opt.count(
            "--iterations", ITERATIONS if iterations is None else iterations, 0
        ),
        "restarts": opt.count("--restarts", restarts or 0, 0),
    }
    weight = given["--sentence-weight"]
    if given["--sentences"] is None:
        opt.refuse({"--sentence-weight": weight}, "needs --sentences FILE")
        return found
    weight = 1.0 if weight is None else weight
    expect(0 < weight < float("inf"), "--sentence-weight", "must be above 0", weight)
    return found | {"sentences": given["--sentences"], "sentence_weight": weight}


def _values(given: str) -> int | str | dict[str, int]:
    """N, auto, or a number for each label: 8,NP=24,DT=4, the first for all others.

    >>> _values("16"), _values("8,NP=24"), _values("auto")
    (16, {'*': 8, 'NP': 24}, 'auto')
    """
    if given == "auto":
        return given
    found: dict[str, int] = {}
    for part in given.split(","):
        label, _, number = part.rpartition("=")
        label = label or "*"
        if not number.isascii() or not number.isdigit() or int(number) < 1 or label in found:
            wanted = "must be a number of at least 1, N,LABEL=N,… or auto"
            raise ArgumentError("--latent", f"{wanted}. Got {given!r}")
        found[label] = int(number)
    return found["*"] if list(found) == ["*"] else found


def _siblings(given: str) -> int | None:
    if given == ALL:
        return None
    if not given.isascii() or not given.isdigit():
        raise ArgumentError("--horizontal", f"must be an integer >= 0, or all. Got {given!r}")
    return int(given)
