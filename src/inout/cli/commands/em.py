"""`inout em`."""

from __future__ import annotations

from inout._core.checks import expect
from inout._core.errors import ArgumentError
from inout.cli.commands import options as opt
from inout.cli.formats import plural
from inout.cli.progress import status

EXAMPLES = """The state is saved in FILE.checkpoint after every iteration and removed at the end. \
After a crash, the same command with --resume continues from there and gives the same grammar as \
an uninterrupted run.

[bold]Examples[/bold]

  inout em english.cfg corpus.txt -o trained.cfg
  inout em english.cfg corpus.txt -o trained.cfg --restarts 10 --seed 1 --prior 0.1
  inout em english.cfg counts.tsv -o trained.cfg --frequencies
  inout em english.cfg corpus.txt -o trained.cfg --resume
"""


@opt.reads_a_grammar
def em(
    grammar: str = opt.GRAMMAR,
    corpus: list[str] = opt.argument("CORPUS", "Files with one sentence per line; - is stdin."),
    out: str = opt.option("--out -o", "FILE", "Where to write the trained grammar.", ...),
    to: str | None = opt.TO,
    iterations: int = opt.ITERATIONS,
    tolerance: float = opt.TOLERANCE,
    restarts: int = opt.RESTARTS,
    seed: int = opt.RESTARTS_SEED,
    prior: float | None = opt.option("--prior", "X", "Add X to the expected count of every rule."),
    alpha: float | None = opt.option(
        "--alpha", "A", "Dirichlet prior; below 1 it removes rarely used rules."
    ),
    frequencies: bool = opt.flag(
        "--frequencies", "Each line is a frequency, a tab and a sentence."
    ),
    brackets: bool = opt.flag(
        "--brackets", "Lines contain brackets that no constituent may cross: (the man) (saw it)."
    ),
    max_words: int = opt.MAX_WORDS,
    checkpoint: str | None = opt.option("--checkpoint", "FILE", "Another file for the checkpoint."),
    resume: bool = opt.RESUME,
    reading: opt.Reading = opt.DETECTED,
    as_json: bool = opt.JSON,
) -> None:
    """Train a grammar on sentences by EM (inside-outside); every step raises the likelihood."""
    opt.count("--iterations", iterations, 0)
    opt.check_seed(seed)
    opt.count("--restarts", restarts, 0)
    opt.count("--max-words", max_words, 1)
    expect(tolerance >= 0, "--tolerance", "must be at least 0", tolerance)
    if prior is not None and alpha is not None:
        raise ArgumentError(None, "give --prior or --alpha, not both")
    with status() as line:
        from inout.cli.grammars.loading import load_grammar, read_sentences
        from inout.cli.grammars.output import output_format

        target = output_format(out, opt.optional_choice("--to", to, opt.FORMATS))
        lines = read_sentences(corpus, [], grammar)
        line.say(f"reading {grammar}")
        loaded = load_grammar(grammar, reading)
        from inout.cli.grammars import em as work

        line.say("reading the corpus")
        data = work.read_corpus(
            lines, frequencies=frequencies, brackets=brackets, max_words=max_words
        )
    trained = work.train(
        loaded,
        data,
        out,
        target,
        checkpoint=checkpoint,
        resume=resume,
        restarts=restarts,
        seed=seed,
        prior=work.chosen_prior(prior, alpha),
        tolerance=tolerance,
        max_iterations=iterations,
    )
    work.print_notes(data, trained)
    if as_json:
        print(work.as_json(out, data, trained))
        return
    rules = plural(len(work.trained_grammar(trained)), "rule")
    print(work.as_text(data, trained, f"{out}, {rules}"))
