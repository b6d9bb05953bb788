"""The demonstration as a self-contained page: trees, charts and the training curve."""

from __future__ import annotations

from collections.abc import Sequence

from inout.cli import formats
from inout.cli.demo.ambiguity import DRAWN, FULL_BAR, SENTENCE, probability
from inout.cli.demo.learning import CLASSES, Lesson, likely_words
from inout.cli.grammars.answers import Answer
from inout.cli.grammars.forests import tree_node
from inout.cli.grammars.parse_html import sections
from inout.grammars.parser.parser import Parser
from inout.viz import page, svg
from inout.viz.plot import line_chart

LEAD = (
    "Ambiguous sentences, parsed with a small grammar of English; how unexpected their words "
    "are; and the same grammar, which forgets its dictionary and relearns it."
)
# The sections of each sentence that is drawn.
WANTED = (("Trees", "Chart", "Forest"), ("Trees", "Chart"))
BEFORE_AND_AFTER = "she gave him an apple"


def as_html(
    found: Sequence[Answer], surprisals: Sequence[tuple[str, float]], lesson: Lesson
) -> str:
    """The whole page."""
    shown = []
    for answer, wanted in zip(found, WANTED, strict=False):
        bodies = (body for heading, body in sections(answer) if heading in wanted)
        shown.append((" ".join(answer.words), "\n".join(bodies)))
    shown += [
        ("More sentences", _others(found[len(DRAWN) :])),
        (f"Surprisal: {SENTENCE}", _surprisals(surprisals)),
        ("Learning: the likelihood rises", _curve(lesson)),
        ("What it learned", _words(lesson)),
        (f"Before and after: {BEFORE_AND_AFTER}", _trees(lesson)),
    ]
    return page.html("inout: parsing and learning", shown, LEAD)


def _others(found: Sequence[Answer]) -> str:
    rows = [
        (" ".join(one.words), formats.whole(int(one.count or 0)), probability(one.trees[0]))
        for one in found
    ]
    return page.table(rows, ["sentence", "trees", "the best tree"], align="lrl", bars=[2])


def _surprisals(found: Sequence[tuple[str, float]]) -> str:
    note = page.paragraph("How unexpected each word is after the words before it, in bits.")
    return note + page.table(found, ["word", "bits"], align="ll", bars=[1], full=FULL_BAR)


def _curve(lesson: Lesson) -> str:
    first, last = lesson.perplexities
    note = page.paragraph(
        "Every part of speech may be any word, with random probabilities. Inside-outside reads "
        f"{len(lesson.corpus)} sentences without trees, many times. The perplexity falls from "
        f"{first:.1f} to {last:.1f} per word, and the share of words with the part of speech that "
        f"the grammar of English gives them grows from {lesson.right_before:.1%} to "
        f"{lesson.right_after:.1%}."
    )
    points = list(enumerate(lesson.result.log_likelihoods))
    drawn = line_chart({"": points}, across="iteration", up="log-likelihood", height=200)
    return note + page.figures([(drawn, "")])


def _words(lesson: Lesson) -> str:
    ways = ((lesson.start, 7), (lesson.result.model, 9))
    rows = [
        (name, *(" ".join(likely_words(grammar, name, most)) for grammar, most in ways))
        for name in CLASSES
    ]
    note = page.paragraph("The likeliest words of some parts of speech.")
    return note + page.table(rows, ["", "at random", "learned"], align="lll")


def _trees(lesson: Lesson) -> str:
    pictures = []
    for grammar, caption in (
        (lesson.start, "the best tree at the start"),
        (lesson.result.model, "the best tree after training"),
    ):
        tree = Parser(grammar).parse(BEFORE_AND_AFTER.split()).plain_tree
        assert tree is not None
        pictures.append((svg.tree(tree_node(tree), baseline=True), caption))
    return page.figures(pictures)
