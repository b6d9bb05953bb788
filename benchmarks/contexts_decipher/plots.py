"""Learning curves as pictures: figure 5 of the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.contexts_decipher.runs import BEAM, CONTEXTS, EXACT, Curve, Setting
from benchmarks.report import RESULTS
from inout.viz.plot import line_chart


def save(curves: Mapping[Setting, Curve], sizes: Sequence[int]) -> None:
    """Write the pictures, results/contexts-decipher-*.svg."""
    RESULTS.mkdir(exist_ok=True)
    for name, text in pictures(curves, sizes).items():
        (RESULTS / f"contexts-decipher-{name}").write_text(text, encoding="utf-8")


def pictures(curves: Mapping[Setting, Curve], sizes: Sequence[int]) -> dict[str, str]:
    """Accuracy by order and by size (figure 5) as SVG."""
    largest = sizes[-1]
    by_order = [
        Setting(1, EXACT),
        *(Setting(order, kind, largest) for order in (1, 2) for kind in (BEAM, CONTEXTS)),
    ]
    by_size = [Setting(2, kind, size) for kind in (BEAM, CONTEXTS) for size in sizes]
    return {
        "orders.svg": _picture(curves, by_order, f"Decipherment, size {largest}"),
        "sizes.svg": _picture(curves, by_size, "Decipherment, 2nd order"),
    }


def _picture(curves: Mapping[Setting, Curve], settings: Sequence[Setting], title: str) -> str:
    series = {
        setting.name: [(float(k), value) for k, value in enumerate(curves[setting].accuracies, 1)]
        for setting in settings
    }
    dashed = [setting.name for setting in settings if setting.kind == BEAM]
    return line_chart(
        series, title=title, across="pass of EM", up="mapping accuracy, %", dashed=dashed
    )
