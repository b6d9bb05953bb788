"""`inout convert`."""

from __future__ import annotations

from inout._core.errors import ArgumentError
from inout.cli.commands import options as opt
from inout.cli.messages import note
from inout.cli.progress import status

EXAMPLES = """[bold]Examples[/bold]

  inout convert english.cfg --to lines
  inout convert wsj.gr.xz -o wsj.json
  inout convert rules.tsv --trim --normalise -o english.cfg
"""


@opt.reads_a_grammar
def convert(
    grammar: str = opt.GRAMMAR,
    out: str | None = opt.option("--out -o", "FILE", "Output file. Default: stdout."),
    to: str | None = opt.TO,
    trim: bool = opt.flag("--trim", "Remove useless rules."),
    normalise: bool = opt.flag(
        "--normalise", "Turn weights into probabilities, keeping the relative weights of trees."
    ),
    log: bool = opt.flag("--log", "Write log-weights (format lines)."),
    reading: opt.Reading = opt.DETECTED,
) -> None:
    """Convert a grammar to another format; trim or normalise it on the way."""
    with status() as line:
        from inout.cli.grammars.loading import load_grammar
        from inout.cli.grammars.output import output_format, put_grammar, trimmed

        target = output_format(out, opt.optional_choice("--to", to, opt.FORMATS))
        line.say(f"reading {grammar}")
        read = load_grammar(grammar, reading)
        made = trimmed(read) if trim else read
        if not len(made):
            raise ArgumentError("--trim", f"would remove all rules: {grammar} derives no tree")
        if normalise:
            made = made.normalised()
        text = made.to_text(target, log=log)
    if len(made) < len(read):
        note(f"removed {len(read) - len(made):,} of {len(read):,} rules")
    put_grammar(out, text, made)
