"""Learning curves as JSON and as pictures: figures 5 and 6 of the paper."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from benchmarks.contexts_decipher.runs import BEAM, CONTEXTS, EXACT, Curve, Setting
from benchmarks.report import RESULTS
from inout.viz.plot import line_chart

ACCURACY, LENGTH = "mapping accuracy, %", "average context length"


def save(curves: Mapping[Setting, Curve], sizes: Sequence[int]) -> None:
    """Write results/contexts-decipher-*: all curves, and the pictures."""
    document = {setting.name: asdict(curve) for setting, curve in curves.items()}
    files = {"curves.json": json.dumps(document, indent=1) + "\n"} | pictures(curves, sizes)
    RESULTS.mkdir(exist_ok=True)
    for name, text in files.items():
        (RESULTS / f"contexts-decipher-{name}").write_text(text, encoding="utf-8")


def pictures(curves: Mapping[Setting, Curve], sizes: Sequence[int]) -> dict[str, str]:
    """Accuracy by order and by size (figure 5), context length by size (figure 6), as SVG."""
    largest = sizes[-1]
    by_order = [
        Setting(1, EXACT),
        *(Setting(order, kind, largest) for order in (1, 2) for kind in (BEAM, CONTEXTS)),
    ]
    by_size = [Setting(2, kind, size) for kind in (BEAM, CONTEXTS) for size in sizes]
    contexts = [Setting(2, CONTEXTS, size) for size in sizes]
    return {
        "orders.svg": _picture(curves, by_order, f"Decipherment, size {largest}", ACCURACY),
        "sizes.svg": _picture(curves, by_size, "Decipherment, 2nd order", ACCURACY),
        "lengths.svg": _picture(curves, contexts, "Decipherment, 2nd order", LENGTH),
    }


def _picture(
    curves: Mapping[Setting, Curve], settings: Sequence[Setting], title: str, up: str
) -> str:
    series = {}
    for setting in settings:
        curve = curves[setting]
        values = curve.accuracies if up == ACCURACY else curve.context_lengths
        series[setting.name] = [(float(k), value) for k, value in enumerate(values, 1)]
    dashed = [setting.name for setting in settings if setting.kind == BEAM]
    return line_chart(series, title=title, across="pass of EM", up=up, dashed=dashed)
