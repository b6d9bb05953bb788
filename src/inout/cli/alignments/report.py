"""Forced alignments as tables and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from rich.text import Text

from inout._core.errors import ArgumentError
from inout.cli.alignments.emissions import Emissions, Transcript, most_frames
from inout.cli.formats import json_line, number
from inout.cli.paper import Paper, bar_text
from inout.distributions.ctc import CTC
from inout.viz.labels import clean

FORMAT = "inout align 1"


@dataclass(frozen=True)
class Row:
    """A word or a label: its frames start, …, stop - 1, and how sure they are."""

    name: str
    start: int
    stop: int
    confidence: float


@dataclass(frozen=True)
class Aligned:
    """What was found."""

    words: Sequence[Row]
    labels: Sequence[Row]
    log_likelihood: float
    frames: int
    seconds: float | None  # of a frame

    def time(self, frame: int) -> str:
        """A frame, or its beginning in seconds."""
        return f"{frame}" if self.seconds is None else f"{frame * self.seconds:.3f}"


def aligned(emissions: Emissions, transcript: Transcript, blank: int) -> Aligned:
    """The best alignment of a transcript with its frames."""
    frames, targets = len(emissions.scores), transcript.targets
    scores = torch.from_numpy(emissions.scores).log_softmax(-1)
    found = CTC(scores, torch.tensor(targets), blank=blank)
    log_likelihood = float(found.log_partition())
    if log_likelihood == -torch.inf:
        needed = most_frames(targets)
        why = (
            f"needs {needed} frames, but there are {frames}"
            if frames < needed
            else "cannot be aligned: some labels have probability 0 wherever they could be"
        )
        raise ArgumentError("transcript", why)
    start, stop, confidence = (part.tolist() for part in found.segments())
    labels = [
        Row(emissions.labels[target], start[k], stop[k], confidence[k])
        for k, target in enumerate(targets)
    ]
    words = []
    for word, places in transcript.words:
        own = [labels[k] for k in places]
        total = sum((row.stop - row.start) * row.confidence for row in own)
        count = sum(row.stop - row.start for row in own)
        words.append(Row(word, own[0].start, own[-1].stop, total / count))
    return Aligned(words, labels, log_likelihood, frames, emissions.seconds)


def print_aligned(paper: Paper, found: Aligned, *, letters: bool) -> None:
    """Print a table of times with confidences."""
    rows: list[list[str | Text]] = [
        [
            clean(row.name),
            found.time(row.start),
            found.time(row.stop),
            f"{row.confidence:.4f}",
            bar_text(row.confidence),
        ]
        for row in (found.labels if letters else found.words)
    ]
    unit = "frame" if found.seconds is None else "s"
    paper.table(
        ["label" if letters else "word", f"from, {unit}", f"to, {unit}", "confidence", ""],
        rows,
        "lrrrl",
    )
    paper.line()
    paper.line(
        f"log-likelihood {found.log_likelihood:.4f}, "
        f"{found.log_likelihood / max(found.frames, 1):.4f} per frame",
        "dim",
    )


def as_json(found: Aligned) -> str:
    """One line of JSON; times in seconds if the length of a frame is known."""

    def rows(given: Sequence[Row]) -> list[dict[str, object]]:
        result = []
        for row in given:
            own: dict[str, object] = {
                "name": row.name,
                "start_frame": row.start,
                "stop_frame": row.stop,
                "confidence": row.confidence,
            }
            if found.seconds is not None:
                own |= {"start": row.start * found.seconds, "stop": row.stop * found.seconds}
            result.append(own)
        return result

    return json_line(
        {
            "format": FORMAT,
            "frames": found.frames,
            "frame_seconds": found.seconds,
            "log_likelihood": number(found.log_likelihood),
            "words": rows(found.words),
            "labels": rows(found.labels),
        }
    )
