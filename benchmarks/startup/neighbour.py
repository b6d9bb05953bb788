"""Small problems, timed in a process of their own: `python -m benchmarks.startup.neighbour`."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

PROBLEMS = ("chain 32x50x20", "PCFG 4x20, 10+20 symbols", "parse of ten words")


def medians(quick: bool) -> dict[str, float]:
    """Seconds for each problem, measured in a new process with all threads that torch wants."""
    line = [sys.executable, "-m", __spec__.name, "30" if quick else "300"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _problems() -> dict[str, Callable[[], object]]:
    import torch

    import inout
    from inout.grammars import library

    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).requires_grad_()

    chain = normal(32, 50, 20), normal(20, 20)
    grammar = normal(4, 10), normal(4, 10, 30, 30), normal(4, 20, 20)
    parser = inout.Parser(library.load("english"))
    words = ["the", "astronomer", "saw", "the", "star", "with", "a", "telescope", "in", "time"]

    def gradient(family: Callable[..., inout.StructuredDistribution], *given: torch.Tensor) -> None:
        torch.autograd.grad(family(*given).log_partition().sum(), given)

    return dict(
        zip(
            PROBLEMS,
            (
                lambda: gradient(inout.LinearChain, *chain),
                lambda: gradient(inout.PCFG, *grammar),
                lambda: parser.parse(words),
            ),
            strict=True,
        )
    )


def _seconds(solve: Callable[[], object]) -> float:
    start = time.perf_counter()
    solve()
    return time.perf_counter() - start


def main() -> None:
    """Prints a median for each problem, over as many runs as the argument says."""
    repeats = int(sys.argv[1])
    found = {}
    for name, solve in _problems().items():
        solve()
        found[name] = statistics.median(_seconds(solve) for _ in range(repeats))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
