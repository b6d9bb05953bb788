"""Tiny problems, by family of kernels: solving them all compiles every kernel.

Each is a function of its own, so that processes can share them out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from inout.distributions import StructuredDistribution
    from inout.forest import Forest
    from inout.grammars.parser.parser import Parser
    from inout.kernels.sparse.cpu.passes import ParsingPasses
    from inout.latent.decoding.best_trees import Method

Problem = Callable[[], object]
_WORDS = ["I", "saw", "her", "duck"]


def _english() -> Parser:
    from inout.grammars import library
    from inout.grammars.parser.parser import Parser

    return Parser(library.load("english"))


def _ask(*questions: str) -> None:
    """Ask queries about a sentence that take no arguments."""
    given = _english().given(_WORDS)
    for question in questions:
        found = getattr(given, question)
        if callable(found):
            found()


def _marginals() -> None:
    given = _english().given(_WORDS)
    found = given.marginals()
    found.rules, found.constituents  # noqa: B018
    given.min_risk()


def _two_words() -> ParsingPasses:
    """A sentence as the kernels see it. It takes no torch, whose import would take a second."""
    import numpy as np

    from inout.kernels.sparse.arrays import RuleArrays, SentenceArrays
    from inout.kernels.sparse.cpu.passes import ParsingPasses

    rules = RuleArrays.compile(2, 0, np.array([[0, 1, 1]]), np.array([[0, 1]]))
    words = SentenceArrays(np.array([0, 2]), np.arange(3), np.ones(2, np.int32))
    return ParsingPasses(rules, words, np.zeros(1), np.zeros(1), np.zeros(2))


def _inside() -> None:
    _two_words().log_partition()


def _best() -> None:
    from inout.kernels.sparse.trees import best_trees

    best_trees(_two_words())


def _best_and_kbest() -> None:
    """Both need the same chart: compiled in one process, that is compiled once."""
    from inout.kernels.sparse.kbest import kbest

    _best()
    kbest(_two_words(), 2)


def _count() -> None:
    from inout.kernels.sparse.counts import count_trees

    count_trees(_two_words())


def _prefix() -> None:
    _english().surprisals(_WORDS)


def _batched() -> None:
    """All symbols over all spans, so that spans are done side by side."""
    import numpy as np

    from inout.kernels.sparse.arrays import RuleArrays, SentenceArrays
    from inout.kernels.sparse.cpu.passes import ParsingPasses

    rules = RuleArrays.compile(5, 0, np.argwhere(np.ones((5, 5, 5))), np.array([[0, 1]]))
    symbols = np.tile(np.arange(5, dtype=np.int32), 100)
    words = SentenceArrays(np.arange(0, 101, 20), np.arange(0, 501, 5), symbols)
    ParsingPasses(rules, words, np.zeros(125), np.zeros(1), np.zeros(500)).expected_counts()


def _forest() -> Forest:
    from inout.deduction import Program

    program = Program(
        'goal += beta("S", 0, N) * length(N).\n'
        "beta(X,I,K) += rule(X,Y,Z) * beta(Y,I,J) * beta(Z,J,K).\n"
        "beta(X,I,K) += rule(X,W) * word(W,I,K)."
    )
    words = [("a", i, i + 1) for i in range(3)]
    rules = {("S", "S", "S"): -1.0, ("S", "a"): -1.0}
    return program.ground({"rule": rules, "word": words, "length": [(3,)]})


def _solve() -> None:
    forest = _forest()
    forest.log_partition()
    forest.expected_counts()
    forest.entropy()


def _derivations() -> None:
    """The k best of an item with two edges, without grounding, which `_solve` compiles."""
    import numpy as np

    from inout.kernels.forest.arrays import Structure
    from inout.kernels.forest.kbest import kbest, viterbi

    offsets = np.array([0, 0, 2]), np.array([0, 1, 2])
    kbest(viterbi(Structure(1, *offsets, np.zeros(2, np.int32)), np.zeros(2)), root=1, k=2)


def _forest_samples() -> None:
    import torch

    forest = _forest()
    forest.sample(2, generator=torch.Generator().manual_seed(0))
    forest.sample_without_replacement(2, generator=torch.Generator().manual_seed(0))
    forest.min_risk()


def _forest_moments() -> None:
    forest = _forest()
    forest.moments(lambda label: float(label == ("word", "a", 0, 1)), 3)


def _distribution(family: str, dtype: torch.dtype) -> StructuredDistribution:
    """A small distribution of a family whose log-potentials are all 0."""
    import torch

    from inout import distributions

    def zeros(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype).requires_grad_()

    if family == "chain":
        return distributions.LinearChain(zeros(2, 4, 3), zeros(3, 3))
    if family == "segments":
        return distributions.SemiMarkov(zeros(2, 4, 2, 3, 3))
    if family == "spans":
        return distributions.SpanTree(zeros(2, 4, 4, 2))
    if family == "factored chain":
        transitions = distributions.TransitionFactors(zeros(3, 2), zeros(2, 3))
        return distributions.LinearChain(zeros(2, 4, 3), transitions)
    if family == "factored pcfg":
        rules = distributions.RuleFactors(zeros(2, 3), zeros(3, 5), zeros(3, 5))
        return distributions.PCFG(zeros(2, 2), rules, zeros(2, 4, 3))
    if family in ("dependencies", "arborescences"):
        projective = family == "dependencies"
        return distributions.DependencyTree(zeros(2, 4, 4), zeros(2, 4), projective=projective)
    if family == "alignment":
        return distributions.Alignment(zeros(2, 4, 3), zeros(2, 4), zeros(2, 3))
    return distributions.PCFG(zeros(2, 2), zeros(2, 2, 5, 5), zeros(2, 4, 3))


def _derivatives(family: str) -> None:
    """log Z and its first two derivatives."""
    import torch

    for dtype in (torch.float32, torch.float64):
        made = _distribution(family, dtype)
        made.marginals()
        torch.autograd.grad(made.entropy().sum(), list(made.potentials.values()))


def _decoding(family: str) -> None:
    import torch

    for dtype in (torch.float32, torch.float64):
        made = _distribution(family, dtype)
        made.mode  # noqa: B018
        made.min_risk()
        made.topk(2)
        made.sample((2,), generator=torch.Generator().manual_seed(0))
        made.sample_without_replacement(2, generator=torch.Generator().manual_seed(0))


def _dense(family: str) -> tuple[Problem, ...]:
    return partial(_derivatives, family), partial(_decoding, family)


def _latent(method: str) -> None:
    import torch

    from inout.grammars.treebank import parse_trees
    from inout.latent import LatentParser
    from inout.learning.latent_grammars import fit_latent_grammar

    trees = list(parse_trees("(TOP (S (NP (PRP she)) (VP (VBD ran) (ADVP (RB far)))))\n" * 3))
    options: dict[str, Any] = {"generator": torch.Generator().manual_seed(0), "method": method}
    if method == "em":
        options["iterations"] = 1
    parser = LatentParser(fit_latent_grammar(trees, 2, **options))
    ways: tuple[Method, ...] = ("max_rule", "min_risk", "goodman")
    for way in ways:
        parser.parse(["she", "ran", "far"], way)


def _tagging() -> None:
    from inout.learning.contexts import fit_contexts

    data = [[["round"], ["dark"]]] * 3
    fit_contexts(data, [["sun", "moon"]] * 3, order=2, epochs=1).tag(data)


def _alignment() -> None:
    from inout.learning.alignment import fit_alignment

    fit_alignment([["A", "B"], ["B"]], ["xyy", "yy"], order=2, epochs=1).predict([["A", "B"]])


# The slowest come first, so that processes end at about the same time; but forests before dense
# grammars, whose decoding needs them.
FAMILIES: dict[str, tuple[Problem, ...]] = {
    "sparse": (
        _best_and_kbest,
        _inside,
        _batched,
        _prefix,
        _marginals,
        partial(_ask, "max_rule"),
        partial(_ask, "sample"),
        partial(_ask, "count", "expected_counts"),
    ),
    "forest": (_solve, _derivations, _forest_samples, _forest_moments),
    "pcfg": _dense("pcfg"),
    "lowrank": (*_dense("factored pcfg"), *_dense("factored chain")),
    "alignment": _dense("alignment"),
    "chain": _dense("chain"),
    "dependencies": _dense("dependencies"),
    "lattice": (_tagging, _alignment),
    "segments": _dense("segments"),
    "arborescences": _dense("arborescences"),
    "latent": (partial(_latent, "spectral"), partial(_latent, "em")),
    "spans": _dense("spans"),
}

# What commands need, each with a kernel that tells whether it is already compiled, the
# slowest first.
COMMANDS: dict[str, tuple[tuple[Problem, str], ...]] = {
    "parse": ((_best, "sparse.cpu.viterbi.viterbi"), (_inside, "sparse.cpu.outside.sweep")),
    "solve": ((_solve, "forest.cpu.scaled.inside"), (_derivations, "forest.cpu.kbest.search")),
    "demo": (
        (_best_and_kbest, "sparse.cpu.kbest.find_trees"),
        (_inside, "sparse.cpu.outside.sweep"),
        (_batched, "sparse.cpu.batched.sweep"),
        (_prefix, "sparse.cpu.prefix.prefixes"),
        (_count, "sparse.cpu.inside.remainder"),  # after `_inside`, which it needs
    ),
}
