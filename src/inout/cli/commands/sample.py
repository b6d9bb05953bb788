"""`inout sample`."""

from __future__ import annotations

from inout.cli.commands import options as opt
from inout.cli.progress import status

EXAMPLES = """[bold]Examples[/bold]

  inout sample english
  inout sample english.cfg -n 1000 --seed 1 > corpus.txt
  inout sample english.cfg -n 3 --format tree
  inout sample rules.tsv --normalise --format bracketed
"""
SHAPES = ("words", "bracketed", "tree")


@opt.reads_a_grammar
def sample(
    grammar: str = opt.GRAMMAR,
    samples: int = opt.option("--samples -n", "N", "Number of samples.", 10),
    seed: int | None = opt.SEED,
    shape: str = opt.option(
        "--format", "FORMAT", "words, bracketed (one tree per line) or tree (drawn).", SHAPES[0]
    ),
    normalise: bool = opt.flag("--normalise", "Turn weights into probabilities first."),
    reading: opt.Reading = opt.DETECTED,
    as_json: bool = opt.JSON,
) -> None:
    """Draw sentences or trees from a grammar."""
    opt.choice("--format", shape, SHAPES)
    opt.count("--samples", samples, 0)
    chosen = opt.seed_or_random(seed)
    with status() as line:
        from inout.cli.grammars.loading import load_grammar

        line.say(f"reading {grammar}")
        loaded = load_grammar(grammar, reading)
        from inout.cli.grammars.sample import prepare, print_samples

        prepared = prepare(loaded, normalise)
    print_samples(prepared, samples, chosen, "json" if as_json else shape)
