"""Workload `forest`: the passes and queries on random forests, one thread, float64."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks import recomputing
from benchmarks.forest.generator import Edges, random_edges
from benchmarks.forest.memory import peak_memory
from benchmarks.forest.plain import Grouped, group, oracle, python_inside_outside
from benchmarks.report import Agreement, Figure
from benchmarks.timing import alternate
from inout import Derivations, Forest

K = 1000
SAMPLES = 100_000


@dataclass(frozen=True, eq=False)
class State:
    """The forests of the workload."""

    quick: bool
    edges: Edges  # 10⁷ binary edges
    forest: Forest
    medium: Forest  # 10⁶ binary edges, for the k best and other queries
    linear: Forest  # 10⁶ edges with an axiom at their right, whose count has tens of digits
    small_edges: Edges  # 10⁵ binary edges, what a Python loop can bear
    small: Forest

    @property
    def repeats(self) -> int:
        """How often the long things run."""
        return 3 if self.quick else 9


def prepare(quick: bool) -> State:
    """The forests, generated and sorted."""
    torch.set_num_threads(1)
    edges = random_edges(1_000_000, 10_000_000, arity=2, seed=1)
    medium = random_edges(100_000, 1_000_000, arity=2, seed=2)
    linear = random_edges(100_000, 1_000_000, arity=2, seed=2, axiom_share=1.0)
    small = random_edges(10_000, 100_000, arity=2, seed=3)
    return State(quick, edges, edges.build(), medium.build(), linear.build(), small, small.build())


def _kbest_of(forest: Forest, k: int) -> Derivations:
    found = forest.kbest(k)
    assert isinstance(found, Derivations)
    return found


def _relative(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference, as a part of the largest number."""
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def check(state: State) -> Iterator[Agreement]:
    """Small forests against plain arithmetic, the large one against other ways to compute."""
    yield from _check_small()
    log_z, counts = python_inside_outside(state.small_edges, group(state.small_edges))
    yield Agreement(
        "log Z, 10⁵ edges: plain Python loop",
        abs(state.small.log_partition().item() - log_z),
        1e-10,
    )
    ours = _by_number(state.small)
    yield Agreement(
        "counts, 10⁵ edges: plain Python loop", _relative(ours, np.array(counts)), 1e-10
    )

    forest = state.forest
    log_z = forest.log_partition().item()
    yield Agreement("log Z, 10⁷ edges, is moderate", abs(log_z), 1000.0)
    by_levels = forest.with_tier("reference")
    yield Agreement(
        "log Z, 10⁷ edges: torch, level by level",
        abs(by_levels.log_partition().item() - log_z),
        1e-10,
    )
    yield from _check_derivatives(state)
    yield from _check_samples(state.medium)


def _by_number(forest: Forest) -> np.ndarray:
    """Expected counts by the generator's numbers of the items (all are used)."""
    counts = np.empty(forest.num_items)
    counts[np.array(forest.labels)] = forest.expected_counts().numpy()
    return counts


def _check_small() -> Iterator[Agreement]:
    differences: dict[str, list[float]] = {"log Z": [], "counts": [], "k best": [], "number": []}
    for seed in range(20):
        edges = random_edges(100, 1000, arity=2 + seed % 2, seed=seed)
        forest, truth = edges.build(), oracle(edges, k=100)
        off = abs(forest.log_partition().item() - truth.log_z)
        differences["log Z"].append(off / max(abs(truth.log_z), 1.0))
        differences["counts"].append(_relative(_by_number(forest), truth.counts))
        differences["k best"].append(_relative(_kbest_of(forest, 100).log_weights, truth.kbest))
        differences["number"].append(float(forest.count() != truth.num_derivations))
    for name, found in differences.items():
        tolerance = 0 if name == "number" else 1e-12
        yield Agreement(f"{name}, 20 small forests: extended precision", max(found), tolerance)


def _check_derivatives(state: State) -> Iterator[Agreement]:
    """Gradient and Hessian along a random direction against central differences."""
    generator = torch.Generator().manual_seed(0)
    weights = state.forest.relations["axioms"]
    direction = torch.randn(len(weights), generator=generator, dtype=torch.float64)
    direction /= direction.norm()

    def moved(step: float) -> Forest:
        return state.forest.with_weights(axioms=weights + step * direction)

    slope = (moved(1e-3).log_partition() - moved(-1e-3).log_partition()) / 2e-3
    along = direction @ state.forest.expected_counts("axioms")
    yield Agreement(
        "gradient along a direction, 10⁷ edges: finite difference",
        abs((along - slope) / slope).item(),
        1e-6,
    )
    difference = (
        moved(1e-3).expected_counts("axioms") - moved(-1e-3).expected_counts("axioms")
    ) / 2e-3
    product = _hessian_product(state.forest, direction)
    yield Agreement(
        "Hessian times a direction, 10⁷ edges: finite difference",
        _relative(product.numpy(), difference.numpy()),
        1e-5,
    )


def _gradient(forest: Forest) -> torch.Tensor:
    weights = forest.relations["axioms"].clone().requires_grad_()
    log_z = forest.with_weights(axioms=weights).log_partition()
    return torch.autograd.grad(log_z, weights)[0]


def _hessian_product(forest: Forest, direction: torch.Tensor) -> torch.Tensor:
    weights = forest.relations["axioms"].clone().requires_grad_()
    log_z = forest.with_weights(axioms=weights).log_partition()
    (gradient,) = torch.autograd.grad(log_z, weights, create_graph=True)
    return torch.autograd.grad(gradient @ direction, weights)[0]


def _check_samples(forest: Forest) -> Iterator[Agreement]:
    """The mean log-weight of samples against E[log weight] = log Z - entropy."""
    samples = forest.sample(SAMPLES, generator=torch.Generator().manual_seed(0))
    assert isinstance(samples, Derivations)
    mean = samples.log_weights.mean()
    deviation = samples.log_weights.std() / np.sqrt(SAMPLES)
    expected = (forest.log_partition() - forest.entropy()).item()
    yield Agreement(
        "mean log-weight of samples, 10⁶ edges, in standard errors",
        float(abs(mean - expected) / deviation),
        5.0,
    )


def measure(state: State) -> Iterator[Figure]:
    """Speed and memory of the passes on the large forest, then the queries on the medium one."""
    yield from _passes(state)
    yield from _wide_passes(state)
    yield from _building(state)
    yield from _memory(state)
    yield from recomputing.forest(5000, 32, state.repeats)
    yield from _python_loop(state)
    yield from _kbest(state)
    yield from _other_queries(state)


def _passes(state: State) -> Iterator[Figure]:
    forest, repeats = state.forest, state.repeats
    million = forest.num_edges / 1e6
    by_levels = forest.with_tier("reference")
    seconds = alternate(
        {
            "inside": forest.log_partition,
            "both": forest.expected_counts,
            "torch": lambda: _gradient(by_levels),
        },
        repeats,
    )
    inside, both = seconds["inside"], seconds["both"]
    yield Figure(
        "inside + outside", million / both, "million edges/s", at_least=10, repeats=repeats
    )
    yield Figure("(inside + outside) / inside", both / inside, "times", at_most=4, repeats=repeats)
    yield Figure("inside alone", million / inside, "million edges/s", repeats=repeats)
    yield Figure(
        "peer: torch level by level with autograd",
        million / seconds["torch"],
        "million edges/s",
        repeats=repeats,
    )
    yield Figure(
        "peer: torch level by level / ours", seconds["torch"] / both, "times", repeats=repeats
    )


def _wide_passes(state: State) -> Iterator[Figure]:
    if state.quick:
        return
    forest = random_edges(1_000_000, 10_000_000, arity=3, seed=4).build()
    seconds = alternate({"both": forest.expected_counts}, state.repeats)
    yield Figure(
        "inside + outside, three tails an edge",
        forest.num_edges / seconds["both"] / 1e6,
        "million edges/s",
        repeats=state.repeats,
    )


def _building(state: State) -> Iterator[Figure]:
    repeats = 1 if state.quick else 3
    seconds = alternate({"build": state.edges.build}, repeats, warm_up=False)
    yield Figure(
        "edges in random order to a forest",
        state.forest.num_edges / seconds["build"] / 1e6,
        "million edges/s",
        repeats=repeats,
    )


def _memory(state: State) -> Iterator[Figure]:
    peaks = peak_memory(state.edges)
    num_edges = state.forest.num_edges
    yield Figure(
        "peak memory: input arrays, building, both passes",
        peaks["all"] / num_edges,
        "bytes/edge",
        at_most=100,
    )
    yield Figure(
        "peak memory: both passes, beyond the forest", peaks["passes"] / num_edges, "bytes/edge"
    )


def _python_loop(state: State) -> Iterator[Figure]:
    grouped: Grouped = group(state.small_edges)
    repeats = state.repeats
    seconds = alternate(
        {
            "ours": state.small.expected_counts,
            "python": lambda: python_inside_outside(state.small_edges, grouped),
        },
        repeats,
    )
    million = state.small.num_edges / 1e6
    yield Figure(
        "inside + outside, 10⁵ edges", million / seconds["ours"], "million edges/s", repeats=repeats
    )
    yield Figure(
        "peer: plain Python loop, 10⁵ edges",
        million / seconds["python"],
        "million edges/s",
        repeats=repeats,
    )
    yield Figure(
        "peer: plain Python loop / ours",
        seconds["python"] / seconds["ours"],
        "times",
        repeats=repeats,
    )


def _kbest(state: State) -> Iterator[Figure]:
    forest, repeats = state.medium, 5 * state.repeats
    derivations = _kbest_of(forest, K)
    seconds = alternate(
        {
            "inside": forest.log_partition,
            "kbest": lambda: forest.kbest(K),
            "walk": lambda: [list(derivation.walk()) for derivation in derivations],
        },
        repeats,
    )
    yield Figure(
        "1,000 best of 10⁶ edges (Viterbi, search, trees as edge numbers) / inside",
        seconds["kbest"] / seconds["inside"],
        "times",
        at_most=3,
        repeats=repeats,
    )
    yield Figure(
        "walking the 1,000 trees node by node", seconds["walk"] * 1e3, "ms", repeats=repeats
    )


def _other_queries(state: State) -> Iterator[Figure]:
    forest, repeats = state.medium, state.repeats
    generator = torch.Generator().manual_seed(0)
    direction = torch.ones(len(forest.relations["axioms"]), dtype=torch.float64)
    local = forest.normalised
    seconds = alternate(
        {
            "gradient": lambda: _gradient(forest),
            "hessian": lambda: _hessian_product(forest, direction),
            "tables": lambda: type(local).of(forest),
            "samples": lambda: forest.sample(SAMPLES, generator=generator),
            "count": state.linear.count,
        },
        repeats,
    )
    yield Figure(
        "samples of 10⁶ edges, tables made",
        SAMPLES / seconds["samples"],
        "trees/s",
        repeats=repeats,
    )
    yield Figure("alias tables of 10⁶ edges", seconds["tables"] * 1e3, "ms", repeats=repeats)
    yield Figure(
        "Hessian-vector product / gradient",
        seconds["hessian"] / seconds["gradient"],
        "times",
        repeats=repeats,
    )
    yield Figure("exact count, 10⁶ edges (linear)", seconds["count"] * 1e3, "ms", repeats=repeats)
