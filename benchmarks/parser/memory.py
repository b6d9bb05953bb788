"""Peak memory of questions about one sentence, in a process of its own (Linux only)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.parser import grammars
from benchmarks.resident import resident, start_of_phase
from inout import Parser

ROOT = Path(__file__).parents[2]
K = 100


def peak_memory() -> dict[str, int]:
    """Bytes at the peak: {"whole": of the process, "growth": over what there was before}.

    "growth" begins with the grammar loaded and everything compiled. Both are resident memory, and
    the most of log Z, expected counts and k best, one after the other.
    """
    script = "from benchmarks.parser import memory; memory.probe()"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    peaks: dict[str, int] = json.loads(done.stdout)
    return peaks


def probe() -> None:
    """Print the peaks as JSON."""
    parser, words = grammars.wsj("R2"), grammars.WSJ_SENTENCE.split()
    _questions(parser, [*words[:5], words[-1]])  # compiles
    before = resident("VmHWM")
    at_first = start_of_phase()
    _questions(parser, words)
    peak = resident("VmHWM")
    print(json.dumps({"whole": max(before, peak), "growth": peak - at_first}))


def _questions(parser: Parser, words: list[str]) -> None:
    parser.log_partition(words)
    parser.expected_counts(words)
    parser.kbest(words, K)
