"""Precision against recall of taggers: a table, a picture, a page."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.text import Text

from inout._core.errors import FileError
from inout.cli.contexts.reading import need_labels
from inout.cli.contexts.tagging import answers, nothing_known, share
from inout.cli.formats import json_line
from inout.cli.messages import note
from inout.cli.paper import Paper, bar_text
from inout.cli.progress import counter
from inout.contexts.confidence import precision_recall, recall_at, threshold_at
from inout.contexts.model import ContextModel
from inout.io.files import write_text
from inout.io.tagged import Form
from inout.viz import page
from inout.viz.plot import line_chart
from inout.viz.text import Cell

FORMAT = "inout context curve 1"
_TENTHS = [k / 10 for k in range(1, 11)]


@dataclass(frozen=True, eq=False)
class Result:
    """How sure a model was of each sequence, and whether it was right."""

    name: str
    about: str
    confidences: list[float]
    correct: list[bool]
    labels: int
    labels_right: int
    strange: bool  # the model has features, and none of them occurs in these sequences

    @property
    def accuracy(self) -> float:
        """The share of sequences whose labels are all right."""
        return sum(self.correct) / len(self.correct)

    @property
    def label_accuracy(self) -> float:
        """The share of labels that are right."""
        return self.labels_right / self.labels

    @property
    def expected(self) -> float:
        """The model's own estimate of `accuracy`."""
        return math.fsum(self.confidences) / len(self.confidences)

    def rows(self) -> list[tuple[float, float, float]]:
        """Recall, precision and confidence at each tenth of the sequences, or just after."""
        precision, recall = precision_recall(self.confidences, self.correct)
        falling = sorted(self.confidences, reverse=True)
        places = dict.fromkeys(
            min(math.ceil(tenth * len(falling)), len(falling)) - 1 for tenth in _TENTHS
        )
        rows = [(float(recall[k]), float(precision[k]), falling[k]) for k in places]
        return list(dict.fromkeys(rows))  # ties may span several tenths


def evaluate(
    path: str, model: ContextModel, paths: Sequence[str], form: Form, size: int | None
) -> Result:
    """Tag all sequences and compare, with a progress bar."""
    confidences, correct = [], []
    labels = labels_right = known = 0
    with counter(f"sequences ({Path(path).name})", prints=False) as step:
        for answer in answers(model, paths, form, size):
            wanted = need_labels(answer.sequence)
            hits = sum(map(str.__eq__, answer.tagging.labels, wanted))
            confidences.append(answer.tagging.confidence)
            correct.append(hits == len(wanted))
            labels, labels_right = labels + len(wanted), labels_right + hits
            known += answer.known
            step(len(correct))
    if not correct:
        raise FileError("no sequences", file=", ".join(paths))
    strange = bool(model.features) and not known
    return Result(path, model.describe(), confidences, correct, labels, labels_right, strange)


def put(
    results: Sequence[Result], precision: float, *, as_json: bool, html: str | None, svg: str | None
) -> None:
    """Write the requested files and print the results."""
    named = dict(zip(_names(results), results, strict=True))
    # Files first: the reader of stdout may stop early.
    if svg is not None:
        write_text(svg, picture(named, precision) + "\n")
    if html is not None:
        write_text(html, _page(named, precision))
    for path in (svg, html):
        if path is not None:
            print(f"wrote {path}", file=sys.stderr)
    if as_json:
        for result in results:
            print(_json(result, precision))
    else:
        _print(named, precision)
    for result in results:
        if result.strange:
            note(f"{result.name}: {nothing_known(len(result.correct))}")


def picture(results: Mapping[str, Result], wanted: float) -> str:
    """The curves, with a line at the wanted precision."""
    series, lowest = {}, wanted
    for name, result in results.items():
        precision, recall = precision_recall(result.confidences, result.correct)
        # Few answers say little, and one wrong answer among them would flatten the rest.
        lowest = min(lowest, precision[recall >= 0.1].min())
        places = np.flatnonzero(np.diff(recall, append=math.inf))  # one of each tie
        # Below the first recall, the first threshold still applies.
        start = [(0.0, float(precision[0]))]
        series[name] = start + [(float(recall[k]), float(precision[k])) for k in places]
    line = f"{wanted:.4g} precision"
    low = min(math.floor((lowest - 0.01) * 20) / 20, 0.95)
    return line_chart(
        {**series, line: [(0.0, wanted), (1.0, wanted)]},
        title="Precision of the most confident answers",
        across="recall: share of sequences answered",
        up="precision: share of answers that are all right",
        across_range=(0.0, 1.0),
        up_range=(max(low, 0.0), 1.0),
        dashed=[line],
    )


def _numbers(result: Result, precision: float) -> list[tuple[str, str]]:
    reached = recall_at(precision, result.confidences, result.correct)
    sure = threshold_at(precision, result.confidences, result.correct)
    note = f", with a confidence of at least {share(sure)}" if reached else ""
    return [
        ("sequences", f"{len(result.correct):,}"),
        ("all labels right", f"{result.accuracy:.2%} (the model expects {result.expected:.2%})"),
        ("labels right", f"{result.label_accuracy:.2%} of {result.labels:,}"),
        (f"recall at {precision:.4g} precision", f"{reached:.2%}{note}"),
    ]


def _print(results: Mapping[str, Result], precision: float) -> None:
    paper = Paper()
    for number, (name, result) in enumerate(results.items()):
        if number:
            paper.line()
        if len(results) > 1:
            paper.line(name, "bold")
        paper.pairs(_numbers(result, precision))
        paper.line()
        rows: list[list[str | Text]] = [
            [f"{recall:.1%}", f"{reached:.2%}", bar_text(reached), share(confidence)]
            for recall, reached, confidence in result.rows()
        ]
        paper.table(["recall", "precision", "", "confidence"], rows, "rrlr")


def _page(results: Mapping[str, Result], precision: float) -> str:
    numbers = {name: dict(_numbers(result, precision)) for name, result in results.items()}
    headers = ["model", *next(iter(numbers.values()))]
    rows = [[name, *values.values()] for name, values in numbers.items()]
    table = page.table(rows, headers, align="l" * len(headers))
    described = [[name, result.about] for name, result in results.items()]
    about = page.table(described, ["model", "description"])
    about_them = page.paragraph(
        "Sequences are ranked by the model's confidence, the probability of the labels it chose. "
        "Recall is the share of sequences that are answered, precision the share of answers in "
        "which all labels are right."
    )
    sections = [
        ("Numbers", table + about),
        ("Precision and recall", about_them + page.figures([(picture(results, precision), "")])),
    ]
    headers = ["recall", "precision", "confidence"]
    for name, result in results.items():
        points: list[list[Cell]] = [[f"{r:.1%}", p, share(c)] for r, p, c in result.rows()]
        heading = "Thresholds" if len(results) == 1 else f"Thresholds of {name}"
        sections.append((heading, page.table(points, headers, align="rrr", bars=[1])))
    return page.html("Precision of the most confident answers", sections)


def _names(results: Sequence[Result]) -> list[str]:
    """File names if they differ, otherwise whole paths."""
    paths = [result.name for result in results]
    short = [Path(path).name for path in paths]
    if len(set(short)) == len(short):
        return short
    pairs = enumerate(paths, 1)
    return [f"{number}: {path}" if paths.count(path) > 1 else path for number, path in pairs]


def _json(result: Result, precision: float) -> str:
    points = precision_recall(result.confidences, result.correct)
    threshold = threshold_at(precision, result.confidences, result.correct)
    return json_line(
        {
            "format": FORMAT,
            "model": result.name,
            "sequences": len(result.correct),
            "labels": result.labels,
            "accuracy": result.accuracy,
            "label_accuracy": result.label_accuracy,
            "expected_accuracy": result.expected,
            "at_precision": precision,
            "recall": recall_at(precision, result.confidences, result.correct),
            "threshold": threshold if math.isfinite(threshold) else None,
            "curve": [
                {"confidence": confidence, "precision": float(p), "recall": float(r)}
                for confidence, p, r in zip(
                    sorted(result.confidences, reverse=True), *points, strict=True
                )
            ],
        }
    )
