"""Time and peak memory of spectral training in a process of its own, reading included."""

from __future__ import annotations

import json
import subprocess
import sys
import time

from benchmarks import genia
from benchmarks.resident import resident


def train(latent: int, limit: int | None) -> dict[str, float]:
    """Seconds and bytes of training on the training part (its first trees)."""
    command = [sys.executable, "-m", "benchmarks.latent.memory", str(latent), str(limit or 0)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Train, and print what it took."""
    latent, limit = int(sys.argv[1]), int(sys.argv[2]) or None
    start = time.perf_counter()
    from inout.learning.latent_grammars import fit_latent_grammar

    fit_latent_grammar(genia.trees("train", limit=limit), latent, "spectral")
    taken = time.perf_counter() - start
    print(json.dumps({"seconds": taken, "bytes": resident("VmHWM")}))


if __name__ == "__main__":
    main()
