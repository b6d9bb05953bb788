"""Plots are well formed, have their points in their places, and refuse what has none."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inout._core.errors import ArgumentError
from inout.viz.plot import Columns, histogram, line_chart, ticks
from tests.contract.test_viz import NASTY

SVG = "{http://www.w3.org/2000/svg}"
NAMES = {"title": "a title", "across": "recall", "up": "precision"}


def drawn(series, **options) -> ElementTree.Element:
    return ElementTree.fromstring(line_chart(series, **{**NAMES, **options}))


def of_class(root: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [e for e in root.iter() if e.get("class") == kind]


def paths(root: ElementTree.Element, kind: str = "io-series") -> list[list[tuple[float, float]]]:
    """The corners of each line."""
    found = []
    for element in of_class(root, kind):
        corners: list[tuple[float, float]] = []
        for command, rest in re.findall(r"([MLHV])([\d.,-]+)", element.get("d", "")):
            numbers = [float(n) for n in rest.split(",")]
            if command == "H":
                corners.append((numbers[0], corners[-1][1]))
            elif command == "V":
                corners.append((corners[-1][0], numbers[0]))
            else:
                corners.append((numbers[0], numbers[1]))
        found.append(corners)
    return found


def area(root: ElementTree.Element) -> tuple[float, float, float, float]:
    (inner,) = of_class(root, "io-area")
    x, y, width, height = map(float, inner.get("viewBox", "").split())
    return x + 4, y + 4, x + width - 4, y + height - 4


def test_points_are_where_the_ranges_say():
    root = drawn({"a": [(0, 0), (0.5, 0.25), (1, 1)]}, across_range=(0, 1), up_range=(0, 1))
    left, top, right, bottom = area(root)
    (corners,) = paths(root)
    assert corners == (
        [(left, bottom), ((left + right) / 2, bottom - (bottom - top) / 4), (right, top)]
    )
    assert [(float(c.get("cx")), float(c.get("cy"))) for c in of_class(root, "io-dot")] == corners


def test_ticks_stand_at_the_values_they_name():
    root = drawn({"a": [(0, -3.0), (7, 12.0)]})
    left, top, right, bottom = area(root)
    (corners,) = paths(root)
    scale = (corners[0][1] - corners[1][1]) / 15.0
    beside = [e for e in of_class(root, "io-note") if "end" in e.get("style", "")]
    assert [e.text for e in beside] == ["-4", "-2", "0", "2", "4", "6", "8", "10", "12"]
    for e in beside:
        assert float(e.get("y")) == pytest.approx(corners[0][1] - scale * (float(e.text) + 3), 1e-3)
        assert top - 1 <= float(e.get("y")) <= bottom + 1


def test_steps_hold_their_value_until_the_next_point():
    root = drawn({"a": [(0, 0), (1, 1)]}, across_range=(0, 1), up_range=(0, 1), step=True)
    left, top, right, bottom = area(root)
    assert paths(root)[0] == [(left, bottom), (right, bottom), (right, top)]


def test_names_are_beside_the_lines_and_inside_the_picture():
    series = {f"{'a long name ' * 6}{k}": [(0, k), (1, k + 1)] for k in range(12)}
    root = drawn(series)
    *_, right, _ = area(root)
    names = of_class(root, "io-name")
    assert len(names) == 12
    places = [float(e.get("y")) for e in names]
    assert all(float(e.get("x")) > right for e in names)
    assert all(b - a >= 14 for a, b in pairwise(places))
    assert places[-1] < float(root.get("height")) - 8
    # As wide as the shortened names need.
    assert float(root.get("width")) > right + 6 * max(len(e.text) for e in names)


def test_a_long_title_stays_inside():
    root = drawn({"a": [(0, 0)]}, title="W" * 100)
    assert float(root.get("width")) > 100 * 13


def test_many_series_stay_distinguishable():
    root = drawn({str(k): [(0, k), (1, k)] for k in range(16)})
    looks = {(e.get("style"), e.get("stroke-dasharray")) for e in of_class(root, "io-series")}
    assert len(looks) == 16


def test_dashes_and_faint_lines():
    root = drawn(
        {"median": [(0, 1), (1, 2)], "other": [(0, 0), (1, 0)]},
        dashed=["other"],
        faint={"median": [[(0, 0), (1, 3)], [(0, 2), (1, 1)]]},
    )
    median, other = of_class(root, "io-series")
    assert median.get("stroke-dasharray") is None
    assert other.get("stroke-dasharray") is not None
    runs = of_class(root, "io-run")
    assert len(runs) == 2
    assert {run.get("style") for run in runs} == {median.get("style").strip()}
    # Ranges hold the single runs too.
    left, top, right, bottom = area(root)
    for corners in paths(root, "io-run"):
        assert all(left <= x <= right and top <= y <= bottom for x, y in corners)


def test_many_points_have_no_dots_and_take_no_room():
    points = [(k / 10_000, (k % 7) * 1e-6) for k in range(10_000)]
    root = drawn({"many": points, "few": points[:10]}, up_range=(0, 1))
    assert len(of_class(root, "io-dot")) == 10
    assert len(line_chart({"many": points}, **NAMES, up_range=(0, 1))) < 100_000


def test_dots_outside_a_range_are_not_drawn():
    root = drawn({"a": [(0, 0), (1, 5), (2, 1)]}, up_range=(0, 1))
    assert len(of_class(root, "io-dot")) == 2


@pytest.mark.parametrize(
    "points",
    [
        [(3.0, 4.0)],
        [(0, 0)],
        [(1, 2), (2, 2), (3, 2)],
        [(1, 1), (1, 2)],
        [(0, 5e-324), (1, 0)],
        [(1e12, 1e12), (1e12 + 1, 1e12 + 1)],
        [(-1e300, -1), (1e300, 1)],
        [(2, 0.1), (1, 0.2)],
    ],
    ids=str,
)
def test_odd_points_are_drawn_inside(points):
    root = drawn({"a": points})
    left, top, right, bottom = area(root)
    (corners,) = paths(root)
    assert corners
    assert all(left <= x <= right and top <= y <= bottom for x, y in corners)
    texts = [e.text for e in of_class(root, "io-note")]
    assert not {"nan", "inf", "-0"} & set(texts)


@pytest.mark.parametrize(
    ("series", "options", "message"),
    [
        ({}, {}, "at least one line"),
        ({"a": []}, {}, "must have points. Got none for 'a'"),
        ({"a": [(0, float("nan"))]}, {}, "finite"),
        ({"a": [(float("inf"), 0)]}, {}, "finite"),
        ({"a": [(0, -1e308), (0, 1e308)]}, {}, "far apart"),
        ({"a": [(0, 0)]}, {"up_range": (1, 1)}, "up_range must be two numbers"),
        ({"a": [(0, 0)]}, {"across_range": (2, 1)}, "across_range must be two numbers"),
        ({"a": [(0, 0)]}, {"dashed": ["b"]}, "Got 'b'"),
        ({"a": [(0, 0)]}, {"faint": {"b": [[(0, 0)]]}}, "Got 'b'"),
        ({"a": [(0, 0)]}, {"faint": {"a": [[]]}}, "must have points"),
    ],
)
def test_what_cannot_be_drawn_is_refused(series, options, message):
    with pytest.raises(ArgumentError, match=message):
        line_chart(series, **NAMES, **options)


def test_text_is_escaped():
    root = ElementTree.fromstring(
        line_chart({NASTY: [(0, 0), (1, 1)]}, title=NASTY, across=NASTY, up=NASTY)
    )
    assert not list(root.iter(f"{SVG}b"))


@settings(deadline=None)
@given(st.lists(st.tuples(*[st.floats(-1e6, 1e6)] * 2), min_size=1, max_size=30))
def test_any_points_are_drawn_inside(points):
    root = drawn({"a": points})
    left, top, right, bottom = area(root)
    for corners in paths(root):
        assert all(left <= x <= right and top <= y <= bottom for x, y in corners)


def test_ticks_are_few_and_inside():
    for high in (0.3, 1.0, 7.7, 123456.0):
        marks = ticks(0.0, high)
        assert 3 <= len(marks) <= 9
        assert marks[0] >= 0
        assert marks[-1] <= high * (1 + 1e-9)
    assert ticks(2.7, 3.3)[-1] == pytest.approx(3.3)


def columns_of(root: ElementTree.Element) -> list[tuple[float, float, float]]:
    """Left end, right end and top of each column."""
    found = []
    for e in of_class(root, "io-column"):
        x, width, y = (float(e.get(name)) for name in ("x", "width", "y"))
        found.append((x, x + width, y))
    return found


def test_columns_are_as_high_as_their_probabilities_and_side_by_side():
    several = [Columns("a", 2, [0.1, 0.4, 0.5], mean=3.4), Columns("b", 3, [0.25, 0.75])]
    root = ElementTree.fromstring(histogram(several, across="words", actual=6))
    found = columns_of(root)
    assert len(found) == 5
    bottom = max(float(e.get("y")) + float(e.get("height")) for e in of_class(root, "io-column"))
    scale = (bottom - found[2][2]) / 0.5
    heights = [bottom - top for *_, top in found]
    assert heights == pytest.approx([scale * p for p in (0.1, 0.4, 0.5, 0.25, 0.75)], abs=0.15)
    ordered = sorted(found)
    assert all(one[1] < other[0] for one, other in pairwise(ordered))
    # The numbers below stand in the middle of their columns, and `actual` has room.
    below = [e for e in of_class(root, "io-note") if not e.get("style")]
    assert [e.text for e in below] == ["2", "3", "4", "5", "6"]
    assert (found[1][0] + found[3][1]) / 2 == pytest.approx(float(below[1].get("x")), abs=2)
    assert len(of_class(root, "io-mean")) == 1
    assert [e.text for e in of_class(root, "io-name")] == ["a", "b", "actual: 6"]


def test_unlikely_ends_are_left_out_and_nothing_is_a_picture_too():
    several = [Columns(NASTY, 0, [1e-5, 0.5, 1e-5, 0.49998, 1e-5])]
    assert len(columns_of(ElementTree.fromstring(histogram(several, across=NASTY)))) == 3
    assert not columns_of(ElementTree.fromstring(histogram([], across="n")))
    assert columns_of(ElementTree.fromstring(histogram([Columns("a", 0, [0.0])], across="n")))
