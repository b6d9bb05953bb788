"""Learning curves as pictures: figure 5 of the paper, and figure 6's of this task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.contexts_decipher.runs import BEAM, CONTEXTS, EXACT, Curve, Setting
from benchmarks.report import RESULTS
from inout.viz.plot import line_chart


def save(curves: Mapping[Setting, Sequence[Curve]], prefix: str) -> None:
    """Write the pictures, results/contexts-decipher-*.svg: of each setting the median text."""
    RESULTS.mkdir(exist_ok=True)
    largest = max(setting.size for setting in curves)
    middle = {setting: _middle(own) for setting, own in curves.items()}
    drawn = [one for one in curves if one.kind in (EXACT, BEAM, CONTEXTS)]
    by_order = [one for one in drawn if one.size in (0, largest)]
    by_size = [one for one in drawn if one.order == 2]
    chosen = [one for one in drawn if one.order == 2 and one.kind == CONTEXTS]
    for name, settings, title, what in (
        ("orders", by_order, f"Decipherment, size {largest}", "accuracies"),
        ("sizes", by_size, "Decipherment, 2nd order", "accuracies"),
        ("lengths", chosen, "Decipherment: average context length", "context_lengths"),
    ):
        text = _picture({one: getattr(middle[one], what) for one in settings}, title, what)
        (RESULTS / f"contexts-decipher-{prefix}{name}.svg").write_text(text, encoding="utf-8")


def _middle(curves: Sequence[Curve]) -> Curve:
    """The curve of the text whose accuracy at the end is the median."""
    return sorted(curves, key=lambda curve: curve.accuracies[-1])[len(curves) // 2]


def _picture(values: Mapping[Setting, Sequence[float]], title: str, what: str) -> str:
    return line_chart(
        {one.name: [(float(k), v) for k, v in enumerate(own, 1)] for one, own in values.items()},
        title=title,
        across="pass of EM",
        up="mapping accuracy, %" if what == "accuracies" else "labels remembered",
        dashed=[one.name for one in values if one.kind == BEAM],
    )
