"""Viterbi and samples of chains beside the peers that have them; no bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import sqrt

import torch

from benchmarks.chain.ours import random_labels
from benchmarks.chain.peers import PytorchCrf, StructChain
from benchmarks.problems import Problem, apart
from benchmarks.report import Agreement, Figure
from benchmarks.timing import alternate

SAMPLES = 10


def check(chain: Problem, shared: Problem) -> Iterator[Agreement]:
    """The scores of the best labels, which may be tied; the mean score of samples."""
    double = chain.to(torch.float64).make()
    theirs = StructChain.of(chain)
    off = apart(double.log_prob(chain.make().mode), double.log_prob(theirs.labels(theirs.argmax())))
    yield Agreement(f"Viterbi, {chain.name}: torch-struct", off, 1e-5)
    generator = torch.Generator().manual_seed(0)
    scores = double.log_prob(chain.make().sample((200,), generator=generator))
    errors = scores.std(0) / sqrt(len(scores))
    expected = -double.entropy()
    # The largest of as many normal deviates as there are elements.
    off = float(((scores.mean(0) - expected).abs() / errors).max())
    yield Agreement(f"mean log-probability of samples, {chain.name}, in standard errors", off, 6.0)

    double = shared.to(torch.float64).make()
    decoded = torch.tensor(PytorchCrf.of(shared, random_labels(shared)).decode())
    off = apart(double.log_prob(shared.make().mode), double.log_prob(decoded))
    yield Agreement(f"Viterbi, {shared.name}: pytorch-crf", off, 1e-5)


def measure(chains: Sequence[Problem], shared: Sequence[Problem], quick: bool) -> Iterator[Figure]:
    """Ours for every chain; torch-struct where it takes less than seconds."""
    yield from _position_specific(chains[0], 1 if quick else 3, with_peer=True)
    for problem in chains[1:]:
        yield from _position_specific(problem, 3 if quick else 15, with_peer=False)
    for problem in shared:
        yield from _shared(problem, 1 if quick else 5)


def _position_specific(problem: Problem, repeats: int, with_peer: bool) -> Iterator[Figure]:
    generator = torch.Generator().manual_seed(0)
    ways = {
        "mode": lambda: problem.make().mode,
        "samples": lambda: problem.make().sample((SAMPLES,), generator=generator),
    }
    if with_peer:
        theirs = StructChain.of(problem)
        ways |= {"their mode": theirs.argmax, "their samples": lambda: theirs.sample(SAMPLES)}
    seconds = alternate(ways, repeats)
    for way, name in (("mode", "Viterbi"), ("samples", f"{SAMPLES} samples an element")):
        yield Figure(f"{name}, {problem.name}", seconds[way] * 1e3, "ms", repeats=repeats)
        if with_peer:
            yield Figure(
                f"peer: torch-struct / ours, {name}, {problem.name}",
                seconds[f"their {way}"] / seconds[way],
                "times",
                repeats=repeats,
            )


def _shared(problem: Problem, repeats: int) -> Iterator[Figure]:
    theirs = PytorchCrf.of(problem, random_labels(problem))
    seconds = alternate({"ours": lambda: problem.make().mode, "theirs": theirs.decode}, repeats)
    yield Figure(f"Viterbi, {problem.name}", seconds["ours"] * 1e3, "ms", repeats=repeats)
    yield Figure(
        f"peer: pytorch-crf / ours, Viterbi, {problem.name}",
        seconds["theirs"] / seconds["ours"],
        "times",
        repeats=repeats,
    )
