"""Answers about sentences as a page: best trees, the chart with posteriors, the forest."""

from __future__ import annotations

import math
from pathlib import Path

from inout.cli import formats
from inout.cli.grammars.answers import Answer, Found
from inout.cli.grammars.forests import packed, tree_node
from inout.cli.grammars.parse_text import FALLBACKS, mass, probability, trees, without_probability
from inout.viz import page, svg
from inout.viz.chart import chart
from inout.viz.labels import shorten

MOST_SENTENCES = 50
MOST_CHART_WORDS = 40


class Pages:
    """Collects the answers for a page."""

    def __init__(self, grammar: str) -> None:
        self._grammar = Path(grammar).name
        self._shown: list[tuple[str, list[tuple[str, str]]]] = []
        self._sentences = 0

    def add(self, answer: Answer) -> None:
        """Add an answer, if the page has room for it."""
        self._sentences += 1
        if self._sentences <= MOST_SENTENCES:
            title = shorten(" ".join(answer.words), 120) or "(no words)"
            self._shown.append((title, sections(answer)))

    def html(self) -> str:
        """The whole page: a section per sentence, or several if there is only one."""
        if self._sentences == 1:
            title, parts = self._shown[0]
            return page.html(title, parts, f"Parsed with {self._grammar}.")
        lead = f"{formats.plural(self._sentences, 'sentence')}, parsed with {self._grammar}."
        if self._sentences > MOST_SENTENCES:
            lead += f" The first {MOST_SENTENCES} are shown; --json has all."
        shown = [(title, "\n".join(body for _, body in parts)) for title, parts in self._shown]
        return page.html("Parses", shown, lead)


_FOREST_NOTE = page.paragraph(
    "All trees, packed: each dot is one way to build the constituent above it from those below; "
    "stronger lines are more probable."
)
_CHART_NOTE = page.paragraph(
    "The labels of each span, with the expected number of such constituents over all trees: a "
    "probability unless a constituent can contain itself. Darker is likelier; tooltips show the "
    "words of the span, more digits, and the logs of inside and outside values."
)


def sections(answer: Answer) -> list[tuple[str, str]]:
    """The sections about a sentence, as pairs of heading and body."""
    if answer.reason is not None:
        return [("No tree", page.paragraph(f"No tree: {answer.reason}."))]
    named = [(f"{rank}", found) for rank, found in enumerate(answer.trees, 1)]
    named += [(f"sample {rank}", found) for rank, found in enumerate(answer.samples, 1)]
    trees_drawn = page.figures(_picture(name, found) for name, found in named)
    parts = [("Numbers", _numbers(answer)), ("Trees", trees_drawn), *_chart(answer)]
    graph = packed(answer.all_trees) if answer.all_trees else None
    if graph is not None:
        parts.append(("Forest", _FOREST_NOTE + page.figures([(svg.forest(graph), "")])))
    return parts


def _chart(answer: Answer) -> list[tuple[str, str]]:
    if answer.constituents is None:
        return []
    if len(answer.words) > MOST_CHART_WORDS:
        text = f"Charts are drawn for up to {MOST_CHART_WORDS} words; --json has the constituents."
        return [("Chart", page.paragraph(text))]
    drawn = chart(answer.words, answer.constituents, answer.log_values or {})
    return [("Chart", _CHART_NOTE + drawn)]


def _picture(name: str, found: Found) -> tuple[str, str]:
    caption = f"{name} · {without_probability(found)}"
    if found.log_prob > -math.inf:
        numbers = f"probability {probability(found)} · log-weight {formats.log(found.log_weight)}"
        caption = f"{name} · {numbers}"
    return page.tree(tree_node(found.tree), baseline=True), caption


def _numbers(answer: Answer) -> str:
    rows = [mass(answer)]
    if answer.count is not None:
        rows.append(("trees", trees(answer.count).removesuffix("s").removesuffix(" tree")))
    if answer.unknown:
        rows.append(("unknown words", " ".join(answer.unknown)))
    if answer.found_by in FALLBACKS:
        rows.append(("how it was found", FALLBACKS[answer.found_by]))
    return page.named_values(rows)
