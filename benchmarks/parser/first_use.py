"""What the first questions cost a new process, which may have to compile the kernels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inout import Parser
from inout.grammars import library

ROOT = Path(__file__).parents[2]


def first_calls() -> tuple[dict[str, float], dict[str, float]]:
    """Seconds of the first call of each question: (nothing compiled yet, compiled before)."""
    with tempfile.TemporaryDirectory() as folder:
        return _run({"NUMBA_CACHE_DIR": folder}), _run({"NUMBA_CACHE_DIR": folder})


def first_calls_compiled() -> dict[str, float]:
    """The second of both, with whatever this machine has compiled before."""
    return _run({})


def _run(variables: dict[str, str]) -> dict[str, float]:
    script = "from benchmarks.parser import first_use; first_use.probe()"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=os.environ | variables,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    seconds: dict[str, float] = json.loads(done.stdout)
    return seconds


def probe() -> None:
    """Print the seconds as JSON; a small grammar, so that nothing but the start costs."""
    parser, words = Parser(library.load("english")), library.sentences("ambiguous")[0]
    seconds = {}
    questions: dict[str, Callable[[], Any]] = {
        "inside": lambda: parser.log_partition(words),
        "expected counts": lambda: parser.expected_counts(words),
        "Viterbi": lambda: parser.parse(words),
        "k best": lambda: parser.kbest(words, 2),
        "minimum risk": lambda: parser.parse(words, "min_risk"),
        "max-rule": lambda: parser.parse(words, "max_rule"),
        "number of trees": lambda: parser.count(words),
        "surprisals": lambda: parser.surprisals(words),
    }
    for name, ask in questions.items():
        start = time.perf_counter()
        ask()
        seconds[name] = time.perf_counter() - start
    print(json.dumps(seconds))
