"""`inout align`."""

from __future__ import annotations

import math

from inout._core.checks import expect
from inout.cli.commands import options as opt
from inout.cli.files import check_inputs
from inout.cli.progress import status

EXAMPLES = """[bold]Emissions[/bold]

A .npz file of numpy with log_probs \\[frames labels], as an acoustic model trained with CTC gives \
them (logits will do), and perhaps with labels, the names of the columns, and frame_seconds; or a \
.npy file of the first alone. --labels names a file with a label on each line otherwise.

[bold]Transcript[/bold]

Words separated by spaces if they are labels; otherwise characters, with the label | (a space or \
▁ will do) between words if there is one.

[bold]Examples[/bold]

  inout align speech.npz --text "good morning"
  inout align speech.npy --labels letters.txt --transcript words.txt --frame-seconds 0.02
  inout align speech.npz --text "good morning" --letters --json
"""


def align(
    emissions: str = opt.argument("EMISSIONS", "File of numpy: scores of labels at frames."),
    text: str | None = opt.option("--text", "TEXT", "The transcript."),
    transcript: str | None = opt.option("--transcript", "FILE", "A file with the transcript."),
    labels: str | None = opt.option("--labels", "FILE", "Names of the columns, one per line."),
    blank: str | None = opt.option(
        "--blank", "LABEL", "The blank: a label, or the number of a column.", shown="0"
    ),
    frame_seconds: float | None = opt.option(
        "--frame-seconds", "X", "Seconds from one frame to the next.", shown="from the file"
    ),
    probabilities: bool = opt.flag("--probabilities", "Scores are probabilities, not logarithms."),
    letters: bool = opt.flag("--letters", "Show labels, not words."),
    as_json: bool = opt.JSON,
) -> None:
    """Find when each word of a transcript is said, and how sure that is."""
    good = frame_seconds is None or 0 < frame_seconds < math.inf
    expect(good, "--frame-seconds", "must be a positive number", frame_seconds)
    check_inputs([name for name in (emissions, transcript, labels) if name is not None])
    from inout.cli.alignments.emissions import read_emissions, split, transcript_of

    words = transcript_of(text, transcript)
    with status() as line:
        line.say(f"reading {emissions}")
        given = read_emissions(emissions, labels, frame_seconds, probabilities=probabilities)
        column = given.blank(blank)
        targets = split(words, given, column)
        from inout.cli.alignments import report
        from inout.cli.paper import Paper

        line.say("aligning")
        found = report.aligned(given, targets, column)
    if as_json:
        print(report.as_json(found))
    else:
        report.print_aligned(Paper(), found, letters=letters)
