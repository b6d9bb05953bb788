"""Agreements and figures, and how they are written: a table, JSON, the last line."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Agreement:
    """Two computations of one thing: how far apart they are, and how far they may be."""

    name: str
    difference: float
    tolerance: float

    @property
    def holds(self) -> bool:
        """Whether they agree (a NaN does not)."""
        return bool(self.difference <= self.tolerance)  # numpy's has no place in JSON


@dataclass(frozen=True)
class Figure:
    """One number, with the bound it must meet if there is one."""

    name: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    repeats: int = 1  # the value is, or is made of, medians over so many runs
    failure: str | None = None  # why there is no value
    cell: tuple[str, str] | None = None  # its row and column, if it is one of a table

    @classmethod
    def failed(cls, name: str, message: str) -> Figure:
        """A figure that could not be computed, which counts as a bound that is missed."""
        return cls(name, float("nan"), "", failure=message)

    @property
    def bound(self) -> str | None:
        """The bound as text."""
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return None if self.at_most is None else f"<= {self.at_most:g}"

    @property
    def holds(self) -> bool | None:
        """Whether the bound is met; None if there is none."""
        if self.failure is not None:
            return False
        if self.at_least is not None:
            return bool(self.value >= self.at_least)
        return None if self.at_most is None else bool(self.value <= self.at_most)

    def summary(self) -> dict[str, Any]:
        """The figure as the last line of a run has it."""
        failed = {} if self.failure is None else {"failure": self.failure}
        return {
            "name": self.name,
            "value": float(f"{self.value:.6g}") if self.failure is None else None,
            "unit": self.unit,
            "bound": self.bound,
            "holds": self.holds,
            **failed,
        }

    def __str__(self) -> str:
        if self.failure is not None:
            return f"{self.name}: failed: {self.failure}"
        return f"{self.name}: {self.value:,.4g} {self.unit}"


@dataclass(frozen=True)
class Report:
    """All that one run found."""

    workload: str
    quick: bool
    machine: dict[str, Any]
    agreements: Sequence[Agreement]
    figures: Sequence[Figure]

    @property
    def holds(self) -> bool:
        """Whether every bound is met."""
        return all(figure.holds is not False for figure in self.figures)

    def markdown(self) -> str:
        """The run as Markdown: machine, agreements, figures."""
        about = "; ".join(f"{name}: {value}" for name, value in self.machine.items())
        figures = [
            (
                figure.name,
                f"{figure.value:,.4g}" if figure.failure is None else "failed",
                figure.unit,
                figure.bound or "",
                {True: "yes", False: "NO", None: ""}[figure.holds],
                str(figure.repeats),
            )
            for figure in self.figures
            if figure.cell is None
        ]
        failures = [f"- {figure}" for figure in self.figures if figure.failure is not None]
        return "\n".join(
            [
                f"# Benchmark `{self.workload}`{' (quick)' if self.quick else ''}",
                "",
                about,
                "",
                *self._checks(),
                *self._cells(),
                "Medians; ours and the peers' runs alternate.",
                "",
                *table(("figure", "value", "unit", "bound", "holds", "repeats"), figures),
                "",
                *([*failures, ""] if failures else []),
            ]
        )

    def _checks(self) -> list[str]:
        """How many agreements were checked, and the one that is closest to its tolerance."""
        if not self.agreements:
            return []
        closest = max(self.agreements, key=lambda a: a.difference / max(a.tolerance, 1e-300))
        return [
            f"{len(self.agreements)} agreements were checked before anything was timed; closest to "
            f"its tolerance: {closest.name} ({closest.difference:.2g}, at most "
            f"{closest.tolerance:g}).",
            "",
        ]

    def _cells(self) -> list[str]:
        """The figures that are cells, as one table."""
        cells = {f.cell: f"{f.value:,.4g}" for f in self.figures if f.cell is not None}
        if not cells:
            return []
        names = list(dict.fromkeys(row for row, _ in cells))
        columns = list(dict.fromkeys(column for _, column in cells))
        rows = [[name, *(cells.get((name, column), "") for column in columns)] for name in names]
        return [*table(("", *columns), rows), ""]

    def last_line(self) -> str:
        """One line of JSON: the figures, the bound of each and whether it holds."""
        figures = [figure.summary() for figure in self.figures]
        return json.dumps({"workload": self.workload, "holds": self.holds, "figures": figures})

    def save(self) -> list[Path]:
        """Write results/NAME.json and results/NAME.md, and name them."""
        document = {
            "workload": self.workload,
            "quick": self.quick,
            "machine": self.machine,
            "holds": self.holds,
            "agreements": [
                asdict(a) | {"difference": float(f"{a.difference:.2g}")} for a in self.agreements
            ],
            "figures": [f.summary() | {"repeats": f.repeats} for f in self.figures],
        }
        RESULTS.mkdir(exist_ok=True)
        written = []
        for ending, text in (("json", _compact(document)), ("md", self.markdown())):
            path = RESULTS / f"{self.workload}.{ending}"
            # A crash leaves the old file, never half of the new one.
            draft = path.with_suffix(f".{ending}.tmp")
            draft.write_text(text, encoding="utf-8")
            written.append(draft.replace(path))
        return written


def _compact(document: dict[str, Any]) -> str:
    """JSON with one line for each entry, and for each agreement and figure."""
    entries = [f"{json.dumps(name)}: {_lines(value)}" for name, value in document.items()]
    return "{" + ",\n".join(entries) + "}\n"


def _lines(value: Any) -> str:
    if not isinstance(value, list):
        return json.dumps(value)
    return "[" + ",\n".join(json.dumps(one) for one in value) + "]"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of text as lines of Markdown."""
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        return f"| {' | '.join(padded)} |"

    return [line(header), line(["-" * width for width in widths]), *map(line, rows)]


def say(line: str) -> None:
    """Tell whoever waits how far it is."""
    print(line, file=sys.stderr, flush=True)
