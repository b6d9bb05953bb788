"""`inout check`."""

from __future__ import annotations

from inout.cli.commands import options as opt
from inout.cli.progress import status

EXAMPLES = """The exit code is 1 if there is a problem.

[bold]Examples[/bold]

  inout check english
  inout check rules.tsv --weighted
  inout check english.cfg --json
"""


@opt.reads_a_grammar
def check(
    grammar: str = opt.GRAMMAR,
    weighted: bool = opt.flag(
        "--weighted", "Weights need not be probabilities: do not check their sums."
    ),
    reading: opt.Reading = opt.DETECTED,
    as_json: bool = opt.JSON,
) -> int:
    """Diagnose a grammar: useless symbols, sums of weights, consistency, expectations."""
    with status() as line:
        from inout.cli.grammars import check as report
        from inout.cli.grammars.loading import load_grammar
        from inout.cli.paper import Paper
        from inout.grammars.diagnostics import diagnose

        line.say(f"reading {grammar}")
        loaded = load_grammar(grammar, reading)
        line.say("analysing the rules")
        found = diagnose(loaded)
    if as_json:
        print(report.as_json(grammar, loaded, found, weighted))
    else:
        report.print_diagnosis(Paper(), grammar, loaded, found, weighted)
    return 1 if report.problems(found, weighted) else 0
