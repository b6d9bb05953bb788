"""Answers about sentences as JSON, one per line."""

from __future__ import annotations

import json
import math
from typing import Any

from inout.cli.formats import exact, number
from inout.cli.grammars.answers import Answer, Found
from inout.grammars.treebank import format_tree

FORMAT = "inout parse 1"
MOST = 700.0  # exp of more overflows


def as_json(answer: Answer) -> str:
    """One line of JSON; infinities and counts beyond 2**53 are strings."""
    document: dict[str, Any] = {
        "format": FORMAT,
        "source": answer.line.source,
        "line": answer.line.number,
        "words": list(answer.words),
        "log_partition": number(answer.log_partition),
        "reason": answer.reason,
        "unknown": list(answer.unknown),
        "trees": [_tree(found) for found in answer.trees],
    }
    if answer.found_by is not None:
        document |= {"sign": answer.sign, "found_by": answer.found_by}
    if answer.samples:
        document["samples"] = [_tree(found) for found in answer.samples]
    if answer.count is not None:
        document["count"] = "inf" if answer.count == math.inf else exact(int(answer.count))
    if answer.constituents is not None:
        document["constituents"] = [
            {"label": label, "start": i, "end": j, "expected_count": value}
            for (label, i, j), value in sorted(
                answer.constituents.items(), key=lambda item: (item[0][1], -item[0][2], -item[1])
            )
        ]
    return json.dumps(document, ensure_ascii=False, allow_nan=False)


def _tree(found: Found) -> dict[str, Any]:
    return {
        "tree": format_tree(found.tree),
        "log_weight": number(found.log_weight),
        "probability": found.sign * math.exp(min(found.log_probability, MOST)),
    }
