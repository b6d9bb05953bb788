"""The selection of contexts against appendix A in plain Python, and against all (y, c)."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from inout import ArgumentError
from inout.kernels.lattice.arrays import Columns, Streams, Targets
from inout.kernels.lattice.histories import Histories
from inout.kernels.lattice.op import Lattice
from inout.kernels.lattice.selection import select
from tests.oracle import reified_contexts as oracle
from tests.oracle.reified_contexts import BOS, INF, AmbiguousError, Column, Stream, Target
from tests.seeds import seeds


class Weights(dict[Any, list[float]]):
    """Rows of random weights, drawn when they are first asked for; some are missing."""

    def __init__(self, rng: random.Random, widths: Sequence[int], values: Any, density: float):
        super().__init__()
        self.rng, self.widths, self.values, self.density = rng, widths, values, density
        self.missing: set[Any] = set()

    def __contains__(self, key: object) -> bool:
        if not super().__contains__(key) and key not in self.missing:
            if self.rng.random() < self.density:
                assert isinstance(key, tuple)
                self[key] = [self.values(self.rng) for _ in range(self.widths[key[0]])]
            else:
                self.missing.add(key)
        return super().__contains__(key)


def loaded(streams: Streams, weights: Weights) -> Histories:
    """The rows that were asked for, in the library's table."""
    histories = Histories(streams)
    for (stream, symbols, given), row in weights.items():
        numbers = [_number(streams, stream, symbol) for symbol in symbols]
        place = histories.row(stream, numbers, given)
        histories.weights[place] = row
    return histories


def _number(streams: Streams, stream: int, symbol: Any) -> int:
    if symbol == BOS:
        return Histories.BEGIN
    if symbol == "⋆":
        return Histories.STAR
    if bool(streams.pairs[stream]):
        shown, given = symbol
        return int(shown + streams.num_actions * (given + 1))
    return int(symbol)


def strings(lattice: Lattice, inputs: bool) -> list[tuple[Any, ...]]:
    """Every context as the oracle writes it; with the inputs -1 of chains, or without."""
    found = []
    for node in range(len(lattice.parents)):
        own = lattice.string(node)
        marked = [(a, -1) if inputs else a for a in own]
        found.append((BOS, *marked) if lattice.is_anchored[node] else tuple(marked))
    return found


def plain(string: tuple[Any, ...]) -> tuple[Any, ...]:
    """A context without its inputs."""
    return tuple(symbol[0] if isinstance(symbol, tuple) else symbol for symbol in string)


def assert_same(lattice: Lattice, example: int, selection: oracle.Selection) -> dict[Any, int]:
    """Contexts, forward sums, scores and targets of one example; returns its edges by name."""
    columns = lattice.columns
    names = strings(lattice, inputs=False)
    first = int(columns.firsts[example])
    edges = {}
    for c, expected in enumerate(selection.contexts):
        nodes = range(*lattice.node_offsets[first + c : first + c + 2])
        assert [names[v] for v in nodes] == [plain(s) for s in expected], f"column {c}"
        for v, string in zip(nodes, expected, strict=True):
            assert close(lattice.forward[v], selection.forward[c, string])
            assert lattice.lengths[v] == len([x for x in string if x != BOS])
        slots = range(*lattice.slot_offsets[first + c : first + c + 2])
        actions = range(columns.first_actions[first + c], columns.end_actions[first + c])
        edge = int(lattice.edge_offsets[first + c])
        for slot in slots:
            v = int(lattice.slot_nodes[slot])
            source = int(np.searchsorted(lattice.node_offsets, v, side="right")) - 1 - first
            for action in actions:
                edges[c, source, names[v], action] = edge
                assert lattice.edge_sources[edge] == v
                assert lattice.actions(np.array([edge]))[0] == action
                edge += 1
        assert edge == lattice.edge_offsets[first + c + 1]
    assert len(edges) == len(selection.edges)
    for (c, source, context, action), (score, target) in selection.edges.items():
        edge = edges[c, source, plain(context), action]
        assert close(lattice.scores[edge], score)
        assert names[lattice.edge_targets[edge]] == plain(target)
    return edges


def assert_totals(
    lattice: Lattice, example: int, edges: dict[Any, int], totals: oracle.Totals
) -> None:
    """log Z, posteriors, masses and the best path of one example."""
    assert close(lattice.log_partition[example], totals.log_z)
    names = {edge: name for name, edge in edges.items()}
    wanted = {(*e[:2], plain(e[2]), e[3]): p for e, p in totals.posteriors.items()}
    for edge, name in names.items():
        assert close(lattice.posteriors[edge], wanted.get(name, 0.0))
    for (c, context), p in totals.mass.items():
        column = int(lattice.columns.firsts[example]) + c
        nodes = range(*lattice.node_offsets[column : column + 2])
        found = [v for v in nodes if strings_of(lattice, v) == plain(context)]
        assert close(lattice.mass[found[0]], p)
    path, offsets, scores = lattice.best()
    own = path[offsets[example] : offsets[example + 1]].tolist()
    assert close(scores[example], totals.best)
    if totals.best > -INF:
        best = [[(*e[:2], plain(e[2]), e[3]) for e in p] for p in totals.best_paths]
        assert [names[e] for e in own] in best or len(best) > 1
    else:
        assert own == []


def strings_of(lattice: Lattice, node: int) -> tuple[Any, ...]:
    own = lattice.string(node)
    return (BOS, *own) if lattice.is_anchored[node] else own


def close(a: float, b: float) -> bool:
    return bool(a == b) or abs(a - b) < 1e-9 * max(1.0, abs(a))


# ---------------------------------------------------------------------------------- chains


def chain_problem(rng: random.Random, values: Any, dead: float) -> dict[str, Any]:
    """Random settings, emission scores and rows of weights."""
    labels, n = rng.randint(1, 4), rng.randint(1, 6)
    memory = rng.choice([None, 1, 2, 3])
    depth = rng.randint(0, 3 if memory is None else memory)
    sizes = [rng.choice([0, 1, 2, 5, 1000])] * n
    if rng.random() < 0.5:
        sizes = [rng.choice([0, 1, 2, 5, 1000]) for _ in range(n)]
    beam = memory is None and rng.random() < 0.3
    emissions = [
        [-INF if rng.random() < dead else values(rng) for _ in range(labels)] for _ in range(n)
    ]
    lengths = sorted(rng.sample(range(depth + 1), rng.randint(0, depth + 1)))
    return {
        "labels": labels,
        "memory": memory,
        "sizes": [*sizes[:-1], 0],
        "beam": beam,
        "escape": rng.choice([0.0, -1.0, -INF]) if beam else rng.choice([0.0, -0.5]),
        "emissions": emissions,
        "lengths": lengths or [0],
        "weights": Weights(rng, [labels], values, 0.8),
        "deepest": rng.random() < 0.3,
    }


def scorer(problem: dict[str, Any]) -> oracle.Score:
    each = list(range(problem["labels"]))
    stream = Stream(each, each, problem["lengths"])

    def score(position: int, context: tuple[Any, ...], label: int) -> float:
        marked = tuple(x if x == BOS or isinstance(x, tuple) else (x, -1) for x in context)
        own: float = problem["emissions"][position][label]
        return own + oracle.feature_score(
            [stream], problem["weights"], marked, -1, label, deepest=problem["deepest"]
        )

    return score


def run_chain(problem: dict[str, Any], copies: int = 1) -> Lattice:
    """The kernel on a problem, several times side by side."""
    n, labels = len(problem["emissions"]), problem["labels"]
    streams = Streams.labels(labels, problem["lengths"], deepest=problem["deepest"])
    return select(
        Columns.chains([n] * copies, labels),
        loaded(streams, problem["weights"]),
        np.array(problem["emissions"] * copies),
        np.array([99, *problem["sizes"]] * copies),
        memory=problem["memory"],
        escape=problem["escape"],
        anchored=problem["beam"],
    )


def check_chain(problem: dict[str, Any], paths: bool = True) -> None:
    score = scorer(problem)
    options = {name: problem[name] for name in ("memory", "beam", "escape")}
    literal = oracle.transcribed(problem["labels"], score, problem["sizes"], **options)
    n = len(problem["emissions"])
    columns = [Column([], range(0))]
    columns += [Column([i], range(problem["labels"])) for i in range(n)]

    def shifted(column: int, context: tuple[Any, ...], label: int) -> float:
        return score(column - 1, context, label)

    by_suffix = oracle.selected(columns, shifted, [0, *problem["sizes"]], **options)
    lattice = run_chain(problem, copies=2)
    for example in (0, 1):
        assert_same(lattice, example, literal)
        edges = assert_same(lattice, example, by_suffix)
    if paths:
        given = {name: options[name] for name in ("memory", "escape")}
        totals = oracle.all_paths(columns, by_suffix.contexts, shifted, **given)
        assert_totals(lattice, 1, edges, totals)


def normal(rng: random.Random) -> float:
    return rng.gauss(0, 1)


@pytest.mark.parametrize("seed", seeds(60))
def test_chains(seed: int) -> None:
    rng = random.Random(seed)
    problem = chain_problem(rng, normal, dead=0.0 if seed % 2 else 0.2)
    check_chain(problem, paths=problem["labels"] ** len(problem["emissions"]) <= 800)


def test_ties_go_to_the_smaller_string() -> None:
    """Scores of 0, 1 and 2, and impossible labels; what rounding decides is left out."""
    checked = 0
    for seed in range(150):
        rng = random.Random(1000 + seed)
        step = rng.choice([0, 1])

        def values(rng: random.Random, step: int = step) -> float:
            return float(step * rng.randint(0, 2))

        problem = chain_problem(rng, values, dead=0.15)
        try:
            check_chain(problem, paths=False)
        except AmbiguousError:
            continue
        checked += 1
    assert checked >= 75


def test_a_tie_by_hand() -> None:
    """Of nine strings of equal mass the first two: the last label decides, then the one before."""
    none = {"lengths": [0], "weights": Weights(random.Random(), [3], normal, 0.0)}
    problem = {
        "labels": 3, "memory": None, "sizes": [2, 2, 0], "beam": False, "escape": 0.0,
        "emissions": [[0.0] * 3] * 3, "deepest": False, **none,
    }  # fmt: skip
    lattice = run_chain(problem)
    names = strings(lattice, inputs=False)
    assert names[1:4] == [(BOS, 0), (BOS, 1), ()]
    assert names[4:7] == [(BOS, 0, 0), (BOS, 1, 0), ()]
    assert close(lattice.log_partition[0], 3 * math.log(3))


def test_memory_of_a_markov_chain_is_exact() -> None:
    """With room for all contexts ⋆…⋆ is empty, and log Z is that of the n-gram model."""
    for seed in range(12):
        rng = random.Random(2000 + seed)
        problem = chain_problem(rng, normal, dead=0.0)
        order = rng.randint(1, 3)
        n = len(problem["emissions"])
        problem |= {"memory": order, "beam": False, "lengths": list(range(order + 1))}
        problem |= {"sizes": [1000] * (n - 1) + [0], "escape": 0.0}
        score = scorer(problem)
        totals = []
        for y in np.ndindex(*[problem["labels"]] * n):
            before = [(BOS, *y[:i]) for i in range(n)]
            totals.append(math.fsum(score(i, before[i][-order:], y[i]) for i in range(n)))
        lattice = run_chain(problem)
        assert close(lattice.log_partition[0], oracle.log_sum(totals))
        star = lattice.lens == 0
        star[lattice.ends] = False
        assert not lattice.mass[star].any()


# ------------------------------------------------------------------------- general columns


def layered(rng: random.Random, labels: int) -> list[Column]:
    """Columns in layers, each with sources in the layer before it; a layer reads one input."""
    ranges = [range(labels), range(labels, 2 * labels), range(2 * labels, 2 * labels + 1)]
    columns, layer = [Column([], range(0))], [0]
    for _ in range(rng.randint(1, 4)):
        given = rng.randint(-1, 1)
        following = []
        for _ in range(rng.randint(1, 3)):
            sources = sorted(rng.sample(layer, rng.randint(1, len(layer))))
            columns.append(Column(sources, rng.choice(ranges), given))
            following.append(len(columns) - 1)
        layer = following
    columns.append(Column(layer, rng.choice(ranges), -1))
    return columns


def library_columns(columns: Sequence[Column]) -> Columns:
    sources = [list(column.sources) for column in columns]
    rows = np.cumsum([bool(own) for own in sources]) - 1
    return Columns(
        firsts=np.array([0, len(columns)], np.int64),
        source_offsets=np.cumsum([0, *map(len, sources)]).astype(np.int64),
        sources=np.array([c for own in sources for c in own], np.int32),
        first_actions=np.array([column.actions.start for column in columns], np.int32),
        end_actions=np.array([column.actions.stop for column in columns], np.int32),
        inputs=np.array([column.given for column in columns], np.int32),
        emission_rows=np.where([bool(own) for own in sources], rows, -1).astype(np.int32),
    )


@pytest.mark.parametrize("by", ["model", "target", "hybrid"])
@pytest.mark.parametrize("seed", seeds(30))
def test_general_columns(seed: int, by: Any) -> None:
    rng = random.Random(5000 + seed)
    labels = rng.randint(1, 3)
    columns = layered(rng, labels)
    actions = 2 * labels + 1
    depth, loud_depth = rng.randint(0, 3), rng.randint(0, 2)
    # Less than a history of letters can show, as some actions show none of their own.
    memory = rng.choice([None, max(loud_depth, 1), loud_depth + 1])
    beam = memory is None and rng.random() < 0.3
    escape = rng.choice([0.0, -1.0])
    each = list(range(labels))
    # Letters: the last action shows none of its own. Edges: with inputs, before and now.
    lengths = [sorted(rng.sample(range(d + 1), rng.randint(1, d + 1))) for d in (depth, loud_depth)]
    streams = [
        Stream([*each, *each, None], [*each, *each, labels], lengths[0]),
        Stream(list(range(actions)), list(range(actions)), lengths[1], True, True),
    ]
    used = np.zeros((2, 1 + max(map(max, lengths))), np.bool_)
    for s in range(2):
        used[s, lengths[s]] = True
    deepest = rng.random() < 0.3
    ours = Streams(
        num_actions=actions,
        symbols=_table([stream.shown for stream in streams]),
        places=_table([stream.places for stream in streams]),
        widths=np.array([labels + 1, actions], np.int32),
        pairs=np.array([False, True]),
        next_input=np.array([False, True]),
        lengths=used,
        num_inputs=2,
        deepest=deepest,
    )
    weights = Weights(rng, [labels + 1, actions], normal, 0.8)
    emissions = [
        [-INF if rng.random() < 0.1 else normal(rng) for _ in range(actions)] for _ in columns[1:]
    ]

    def score(column: int, context: tuple[Any, ...], action: int) -> float:
        given = columns[column].given
        own = oracle.feature_score(streams, weights, context, given, action, deepest=deepest)
        return emissions[column - 1][action] + own

    writes: list[int | None] = [*each, *each, None]
    target = Target(writes, [rng.randrange(labels) for _ in range(rng.randint(0, 4))])
    options = {"memory": memory, "escape": escape}
    sizes = [rng.choice([0, 1, 2, 3, 1000]) for _ in columns]
    aims = Targets(
        _table([writes])[0],
        np.array(target.string, np.int32),
        np.array([0, len(target.string)], np.int64),
    )
    given_target = None if by == "model" else target
    selection = oracle.selected(
        columns, score, sizes, beam=beam, by=by, target=given_target, **options
    )
    totals = oracle.all_paths(columns, selection.contexts, score, target=target, **options)
    lattice = select(
        library_columns(columns), loaded(ours, weights), np.array(emissions), np.array(sizes),
        anchored=beam, by=by, targets=None if by == "model" else aims, **options,
    )  # fmt: skip
    edges = assert_same(lattice, 0, selection)
    assert_totals(lattice, 0, edges, totals)
    constrained = lattice.constrained(aims)
    assert close(constrained.log_partition[0], totals.constrained)
    wanted = {(*e[:2], plain(e[2]), e[3]): p for e, p in totals.constrained_posteriors.items()}
    for name, edge in edges.items():
        assert close(constrained.posteriors[edge], wanted.get(name, 0.0))


def _table(rows: Sequence[Sequence[int | None]]) -> Any:
    return np.array([[-1 if x is None else x for x in row] for row in rows], np.int32)


def test_rescored_contexts_stay() -> None:
    """Other scores on the same contexts, against all paths."""
    for seed in range(10):
        rng = random.Random(7000 + seed)
        problem = chain_problem(rng, normal, dead=0.1) | {"beam": False, "escape": 0.0}
        scorer_now = scorer(problem)
        oracle.transcribed(
            problem["labels"], scorer_now, problem["sizes"], memory=problem["memory"]
        )
        lattice = run_chain(problem)
        moved = {"emissions": [[normal(rng) for _ in row] for row in problem["emissions"]]}
        again = scorer(problem | moved)
        columns = [Column([], range(0))]
        columns += [Column([i], range(problem["labels"])) for i in range(len(problem["sizes"]))]
        names = [
            tuple(x if x == BOS else (x, -1) for x in string)
            for string in strings(lattice, inputs=False)
        ]
        contexts = [
            names[a:b]
            for a, b in zip(lattice.node_offsets[:-1], lattice.node_offsets[1:], strict=True)
        ]

        def score(column: int, context: tuple[Any, ...], label: int, again: Any = again) -> float:
            return float(again(column - 1, context, label))

        totals = oracle.all_paths(columns, contexts, score, memory=problem["memory"])
        scores = np.empty(len(lattice.scores))
        for edge in range(len(scores)):
            column = int(np.searchsorted(lattice.edge_offsets, edge, side="right")) - 1
            action = int(lattice.actions(np.array([edge]))[0])
            scores[edge] = score(column, names[lattice.edge_sources[edge]], action)
        new = lattice.rescored(scores)
        assert close(new.log_partition[0], totals.log_z)
        assert np.array_equal(new.edge_targets, lattice.edge_targets)


def test_memory_must_reach_as_far_as_the_histories() -> None:
    columns = Columns.chains([3], 2)
    for memory in (0, 1):
        with pytest.raises(ArgumentError, match=rf"memory must be at least 2.* Got {memory}"):
            select(columns, Histories(Streams.labels(2, [0, 2])), None, 5, memory=memory)
