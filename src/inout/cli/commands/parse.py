"""`inout parse`: by a grammar, or by a latent model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from inout._core.checks import expect
from inout._core.errors import ArgumentError
from inout.cli.commands import options as opt
from inout.cli.files import check_output
from inout.cli.progress import status

if TYPE_CHECKING:
    from inout.cli.grammars.answers import Answer, Request
    from inout.cli.grammars.loading import Line
    from inout.cli.progress import Line as StatusLine
    from inout.grammars.grammar import Grammar

    Ask = Callable[[Line, int], Answer]  # the seed is that of its samples

EXAMPLES = """[bold]Examples[/bold]

  inout parse english --sentence "time flies like an arrow"
  inout parse english --sentence "time flies like an arrow" --k 5 --count --html page.html
  inout parse english.cfg sentences.txt --samples 3 --seed 1
  inout parse grammar.json dev.txt --method min-risk --restore --format bracketed > parses.mrg
  inout parse english.cfg --json --constituents < sentences.txt
  inout parse --model model.lpcfg dev.txt --format bracketed > parses.mrg
"""
GOODMAN, VITERBI, MIN_RISK, MAX_RULE = "goodman", "viterbi", "min-risk", "max-rule"
METHODS = (VITERBI, MIN_RISK, MAX_RULE, GOODMAN)
SHAPES = ("tree", "bracketed")
THRESHOLD, NO_PRUNING = "1e-5", "none"


@opt.reads_a_grammar
def parse(
    grammar: str | None = opt.argument(
        "GRAMMAR",
        "Grammar file, latent model, or a name from the library (english); - is stdin. Not "
        "with --model.",
        None,
    ),
    files: list[str] | None = opt.SENTENCES,
    sentence: list[str] | None = opt.SENTENCE,
    model: str | None = opt.option(
        "--model", "MODEL", "Latent model from `inout induce --latent`."
    ),
    k: int = opt.option("--k", "K", "Number of best trees.", 1),
    samples: int = opt.option("--samples", "N", "Also sample N trees.", 0),
    seed: int | None = opt.SEED,
    method: str | None = opt.option(
        "--method",
        "METHOD",
        "Which tree is best: viterbi (most probable), min-risk (most expected constituents), "
        "max-rule (largest product of rule posteriors), goodman (most expected nodes; latent "
        "models only).",
        shown="viterbi; max-rule for latent models, which have no viterbi",
    ),
    shape: str = opt.option(
        "--format", "FORMAT", "tree (drawn) or bracketed (one per line).", SHAPES[0]
    ),
    count_trees: bool = opt.flag("--count", "Count all trees, exactly."),
    constituents: bool = opt.flag(
        "--constituents",
        "With --json: expected number, log inside and outside value of each constituent.",
    ),
    restore: bool = opt.flag("--restore", "Undo the Markovisation of `inout induce`."),
    threshold: str | None = opt.option(
        "--threshold",
        "X",
        "Latent models: prune items whose expected count by the skeletal rules is below X. "
        "0 or none: no pruning, about a minute for 120 words.",
        shown=THRESHOLD,
    ),
    max_words: int = opt.MAX_WORDS,
    reading: opt.Reading = opt.DETECTED,
    as_json: bool = opt.JSON,
    html: str | None = opt.HTML,
) -> None:
    """Parse sentences: best trees with their probabilities, samples, counts, charts."""
    opt.count("--k", k, 1)
    opt.count("--samples", samples, 0)
    used_seed = opt.seed_or_random(seed)
    opt.count("--max-words", max_words, 1)
    opt.optional_choice("--method", method, METHODS)
    opt.choice("--format", shape, SHAPES)
    pruning = _threshold(threshold or THRESHOLD)
    bare = shape == "bracketed" and not as_json and html is None
    if count_trees and bare:
        raise ArgumentError("--count", "needs --format tree, --json or --html: brackets have none")
    if constituents and not as_json:
        raise ArgumentError("--constituents", "needs --json")
    if k > 1 and method not in (None, VITERBI):
        raise ArgumentError("--k", f"{k} needs --method viterbi: other methods have one best tree")
    given = list(files or [])
    if model is not None and grammar is not None:
        given, grammar = [grammar, *given], None
    with status() as line:
        from inout.cli.grammars.answers import Request
        from inout.cli.grammars.loading import check_model, is_model, load_grammar, read_sentences

        check_output("--html", html)
        if grammar is not None and is_model(grammar):
            grammar, model = None, grammar
        name = grammar if model is None else model
        if name is None:
            raise ArgumentError(None, "missing argument GRAMMAR, or --model MODEL")
        if model is None:
            of_models = {"--threshold": threshold, "--method goodman": method == GOODMAN}
            opt.refuse(of_models, "is for latent models only")
        else:
            _check_for_model(method, k, {"--count": count_trees, **reading.options})
            check_model(model)
        lines = read_sentences(given, sentence or [], name)
        request = Request(
            k=k,
            samples=samples,
            method=(method or (VITERBI if model is None else MAX_RULE)).replace("-", "_"),
            count=count_trees or html is not None,
            constituents=constituents or html is not None,
            picture=html is not None,
            restore=restore,
            numbers=not bare or k > 1 or samples > 0,
            max_words=max_words,
        )
        line.say(f"reading {name}")
        if model is None:
            loaded = load_grammar(name, reading)
            ask = _by_grammar(loaded, request, line)
        else:
            ask = _by_model(model, pruning, request)
        from inout._core.pipeline import begun
        from inout.cli.grammars.parse_output import print_answers, seeded_answers

        line.say("parsing")
        found = begun(seeded_answers(ask, lines, used_seed), lines)
    print_answers(
        found,
        len(lines) if isinstance(lines, list) else None,
        shape="json" if as_json else "bracketed" if shape == "bracketed" else "tree",
        several=k > 1 or samples > 0,
        html=html,
        name=name,
    )


def _by_grammar(grammar: Grammar, request: Request, line: StatusLine) -> Ask:
    line.prepare("parse")  # before torch is imported, which goes on meanwhile
    from inout.cli.grammars.parse_by_grammar import answer
    from inout.grammars.parser.parser import Parser

    return partial(answer, Parser(grammar), request)


def _by_model(path: str, pruning: float | None, request: Request) -> Ask:
    from inout.cli.grammars.parse_by_model import answer
    from inout.latent.decoding.parser import LatentParser
    from inout.latent.grammar import LatentGrammar

    model = LatentGrammar.load(path)
    if request.samples and not model.model.is_nonnegative:
        wanted = "needs a model of probabilities, for example from `inout induce --method em`"
        given = f"{path}, which has negative parameters"
        raise ArgumentError("--samples", f"{wanted}. Got {given}")
    return partial(answer, LatentParser(model, threshold=pruning), request)


def _check_for_model(method: str | None, k: int, of_grammars: dict[str, Any]) -> None:
    """Refuse what a latent model cannot answer, and options that only grammars have."""
    if method == VITERBI:
        raise ArgumentError(
            "--method",
            "must be max-rule, min-risk or goodman for a latent model, whose most probable tree "
            "is intractable. Got viterbi",
        )
    if k > 1:
        raise ArgumentError("--k", f"{k} is for grammars only: latent models have one best tree")
    opt.refuse(of_grammars, "is for grammars only, not for latent models")


def _threshold(given: str) -> float | None:
    """The parser's threshold; None (no pruning) if it is 0 or none."""
    if given == NO_PRUNING:
        return None
    try:
        value = float(given)
    except ValueError:
        value = -1.0
    expect(0 <= value < 1, "--threshold", "must be a number >= 0 and < 1, or none", given)
    return value or None
