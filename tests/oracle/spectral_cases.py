"""Small grammars with latent values, all of their trees, and the paper's figures 4, 5, 7 and 8."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from nltk.tree import Tree

from inout.latent.model import LPCFG

# No nonterminal is below itself, so there are finitely many trees. S is at the root only; A, B and
# C have words as well as children.
BINARY = [
    ("S", "A", "B"),
    ("S", "B", "A"),
    ("A", "C", "D"),
    ("A", "D", "C"),
    ("B", "C", "D"),
    ("B", "D", "D"),
    ("C", "D", "D"),
]
LEXICAL = [("A", "x"), ("A", "y"), ("B", "x"), ("B", "z"), *product("C", "xz"), *product("D", "xy")]
SIZES = {"S": 2, "A": 3, "B": 2, "C": 3, "D": 2}


@dataclass(frozen=True)
class Grammar:
    """Parameters by name: π [m_a], q [m_a], t [m_a m_b m_c] (section 4)."""

    roots: dict[str, np.ndarray]
    binary: dict[tuple[str, str, str], np.ndarray]
    lexical: dict[tuple[str, str], np.ndarray]

    def based(self, bases: dict[str, np.ndarray]) -> Grammar:
        """The same grammar after the change of basis of theorem 1."""
        inverse = {a: np.linalg.inv(base) for a, base in bases.items()}
        return Grammar(
            {a: bases[a] @ root for a, root in self.roots.items()},
            {
                (a, b, c): np.einsum("hpq,jp,kq,hi->ijk", t, bases[b], bases[c], inverse[a])
                for (a, b, c), t in self.binary.items()
            },
            {(a, x): q @ inverse[a] for (a, x), q in self.lexical.items()},
        )


def random_grammar(
    random: np.random.Generator, sizes: dict[str, int] = SIZES, peak: float = 1.0
) -> Grammar:
    """Random probabilities; with a smaller `peak`, latent values differ more."""
    binary, lexical = {}, {}
    for a, size in sizes.items():
        rules = [rule for rule in BINARY if rule[0] == a]
        words = [rule for rule in LEXICAL if rule[0] == a]
        volumes = [sizes[b] * sizes[c] for _, b, c in rules] + [1] * len(words)
        drawn = random.dirichlet(np.full(sum(volumes), peak), size)  # [m_a, all]
        parts = np.split(drawn, np.cumsum(volumes)[:-1], axis=1)
        for rule, part in zip(rules, parts[: len(rules)], strict=True):
            binary[rule] = part.reshape(size, sizes[rule[1]], sizes[rule[2]])
        for word, part in zip(words, parts[len(rules) :], strict=True):
            lexical[word] = part[:, 0]
    rooted = random.dirichlet(np.ones(sizes["S"] + sizes["A"]))
    roots = {"S": rooted[: sizes["S"]], "A": rooted[sizes["S"] :]}
    return Grammar(roots, binary, lexical)


def named(model: LPCFG) -> Grammar:
    """The parameters of a model by name."""
    skeleton, layout = model.skeleton, model.layout
    names, words = skeleton.nonterminals, skeleton.words
    return Grammar(
        {name: layout.root(model.parameters, a) for a, name in enumerate(names)},
        {
            tuple(names[s] for s in rule): layout.block(model.parameters, r)
            for r, rule in enumerate(skeleton.binary.tolist())
        },
        {
            (names[a], words[x]): layout.lexical(model.parameters, r)
            for r, (a, x) in enumerate(skeleton.lexical.tolist())
        },
    )


def all_trees() -> list[Tree]:
    """Every tree with S or A at the root."""
    return [tree for root in ("S", "A") for tree in _below(root)]


def _below(a: str) -> Iterator[Tree]:
    for rule in BINARY:
        if rule[0] == a:
            for left, right in product(_below(rule[1]), _below(rule[2])):
                yield Tree(a, [left.copy(deep=True), right.copy(deep=True)])
    for rule in LEXICAL:
        if rule[0] == a:
            yield Tree(a, [rule[1]])


def probability(grammar: Grammar, tree: Tree) -> float:
    """Figure 4."""
    return float(_vector(grammar, tree) @ grammar.roots.get(tree.label(), np.zeros(1)))


def _vector(grammar: Grammar, tree: Tree) -> np.ndarray:
    if isinstance(tree[0], str):
        return grammar.lexical[tree.label(), tree[0]]
    left, right = (_vector(grammar, child) for child in tree)
    block = grammar.binary[tree.label(), tree[0].label(), tree[1].label()]
    return block @ right @ left


def probability_by_values(grammar: Grammar, tree: Tree) -> float:
    """The sum over all latent values of all nodes (equation 2)."""
    nodes = list(tree.subtrees())
    places = {id(node): i for i, node in enumerate(nodes)}
    sizes = [
        len(grammar.lexical[node.label(), node[0]])
        if isinstance(node[0], str)
        else len(grammar.binary[node.label(), node[0].label(), node[1].label()])
        for node in nodes
    ]
    total = 0.0
    for values in product(*map(range, sizes)):
        term = grammar.roots[tree.label()][values[0]]
        for node, h in zip(nodes, values, strict=True):
            if isinstance(node[0], str):
                term *= grammar.lexical[node.label(), node[0]][h]
            else:
                block = grammar.binary[node.label(), node[0].label(), node[1].label()]
                term *= block[h, values[places[id(node[0])]], values[places[id(node[1])]]]
        total += term
    return total


def marginals(grammar: Grammar, words: list[str]) -> dict[tuple[str, int, int], float]:
    """Figure 5: μ(a, i, j), spans from i to before j."""
    n = len(words)
    inside: dict[tuple[str, int, int], np.ndarray] = defaultdict(lambda: np.zeros(()))
    outside: dict[tuple[str, int, int], np.ndarray] = defaultdict(lambda: np.zeros(()))
    for i, word in enumerate(words):
        for (a, x), vector in grammar.lexical.items():
            if x == word:
                inside[a, i, i + 1] = vector
    splits = [
        (i, k, i + width) for width in range(2, n + 1) for i in range(n - width + 1)
        for k in range(i + 1, i + width)
    ]  # fmt: skip
    for i, k, j in splits:
        for (a, b, c), block in grammar.binary.items():
            if (b, i, k) in inside and (c, k, j) in inside:
                found = np.einsum("hpq,p,q->h", block, inside[b, i, k], inside[c, k, j])
                inside[a, i, j] = inside[a, i, j] + found
    for a, vector in grammar.roots.items():
        outside[a, 0, n] = vector
    for i, k, j in reversed(splits):
        for (a, b, c), block in grammar.binary.items():
            if (a, i, j) in outside and (b, i, k) in inside and (c, k, j) in inside:
                above = outside[a, i, j]
                left = np.einsum("hpq,h,q->p", block, above, inside[c, k, j])
                right = np.einsum("hpq,h,p->q", block, above, inside[b, i, k])
                outside[b, i, k] = outside[b, i, k] + left
                outside[c, k, j] = outside[c, k, j] + right
    return {
        item: float(vector @ outside[item]) for item, vector in inside.items() if item in outside
    }


def spans(tree: Tree, start: int = 0) -> list[tuple[str, int, int]]:
    """The constituents (a, i, j) of a tree."""
    found = [(tree.label(), start, start + len(tree.leaves()))]
    for child in tree:
        if isinstance(child, Tree):
            found += spans(child, start)
            start += len(child.leaves())
    return found


def figure_7(
    trees: list[Tree], weights: np.ndarray, rank: dict[str, int], *, transposed: bool = False
) -> Grammar:
    """Figures 7 and 8 with dense matrices, from all nodes; few features, by dictionaries."""
    return figure_7_with_moments(trees, weights, rank, transposed=transposed)[0]


def theorem_3(
    trees: list[Tree], weights: np.ndarray, rank: dict[str, int], epsilon: float, n: int, d: float
) -> float:
    """M_a that is enough for 1 - ε ≤ p̂/p ≤ 1 + ε, except with probability δ, as printed.

    But for Λ: zeros outside of the diagonal of (Σᵃ)⁻¹ are not counted.
    """
    moments, sigma, last = figure_7_with_moments(trees, weights, rank, inverse=False)[:3]
    elements = [abs(x) for part in (moments.roots, moments.binary, moments.lexical)
                for value in part.values() for x in np.ravel(value)]  # fmt: skip
    for matrix in sigma.values():
        elements += [abs(x) for x in np.diag(np.linalg.inv(matrix))]
    least = min(x for x in elements if x > 1e-12)
    m, rules = max(rank.values()), len(moments.binary) + len(moments.lexical)
    step = (1 + epsilon) ** (1 / (2 * n + 1)) - 1
    return 128 * m**2 / (step**2 * least**2 * min(last.values()) ** 4) * np.log(2 * m * rules / d)


def figure_7_with_moments(
    trees: list[Tree],
    weights: np.ndarray,
    rank: dict[str, int],
    *,
    transposed: bool = False,
    inverse: bool = True,
) -> tuple[Grammar, dict[str, np.ndarray], dict[str, float]]:
    """The grammar, Σᵃ, and the last singular value of each Ωᵃ that counts.

    Without `inverse`, the grammar has D and d∞ instead of C and c∞.

    φ: 1, the rule, the rule of the left child. ψ: 1, the parent's rule and the side, the rule of
    the sibling. `transposed` computes Ω as the figure prints it.
    """
    phis: dict[str, dict[object, int]] = defaultdict(dict)
    psis: dict[str, dict[object, int]] = defaultdict(dict)
    nodes = []
    for tree, weight in zip(trees, weights, strict=True):
        for node, phi, psi, is_root in _views(tree):
            a = node.label()
            phi = [phis[a].setdefault(f, len(phis[a])) for f in phi]
            psi = [psis[a].setdefault(f, len(psis[a])) for f in psi]
            nodes.append((node, phi, psi, weight, is_root))
    u, v, sigma, last, factor = {}, {}, {}, {}, {}
    totals: dict[str, float] = defaultdict(float)
    omega = {a: np.zeros((len(phis[a]), len(psis[a]))) for a in phis}
    for node, phi, psi, weight, _ in nodes:
        totals[node.label()] += weight
        for f, g in product(phi, psi):
            omega[node.label()][f, g] += weight
    for a, matrix in omega.items():
        left, values, right = np.linalg.svd((matrix.T if transposed else matrix) / totals[a])
        u[a], v[a], last[a] = left[:, : rank[a]], right[: rank[a]].T, values[rank[a] - 1]
        sigma[a] = u[a].T @ matrix @ v[a] / totals[a]
        factor[a] = np.linalg.inv(sigma[a]) if inverse else np.eye(rank[a])
    y = {id(node): u[node.label()][phi].sum(axis=0) for node, phi, *_ in nodes}
    zero = defaultdict(lambda: 0.0)  # type: ignore[var-annotated]
    grammar = Grammar(zero.copy(), zero.copy(), zero.copy())  # type: ignore[arg-type]
    for node, _, psi, weight, is_root in nodes:
        a = node.label()
        z = v[a][psi].sum(axis=0) @ factor[a] * (weight / totals[a])
        if is_root:
            grammar.roots[a] = grammar.roots[a] + y[id(node)] * (weight / weights.sum())
        if isinstance(node[0], str):
            grammar.lexical[a, node[0]] = grammar.lexical[a, node[0]] + z
        else:
            rule = a, node[0].label(), node[1].label()
            found = np.einsum("i,j,k->ijk", z, y[id(node[0])], y[id(node[1])])
            grammar.binary[rule] = grammar.binary[rule] + found
    return grammar, sigma, last


def _views(tree: Tree) -> Iterator[tuple[Tree, list[object], list[object], bool]]:
    """Each node with its features, as `figure_7` has them."""

    def rule(node: Tree) -> object:
        return tuple(c if isinstance(c, str) else c.label() for c in node)

    def visit(node: Tree, psi: list[object]) -> Iterator[tuple[Tree, list[object], list[object]]]:
        phi: list[object] = ["one", ("rule", rule(node))]
        if isinstance(node[0], Tree):
            phi.append(("left", rule(node), node[0].label(), rule(node[0])))
        yield node, phi, psi
        if isinstance(node[0], Tree):
            for side, (child, sibling) in enumerate([(node[0], node[1]), (node[1], node[0])]):
                parent = ("parent", node.label(), rule(node), side)
                beside = ("sibling", side, sibling.label(), rule(sibling))
                yield from visit(child, ["one", parent, beside])

    for node, phi, psi in visit(tree, ["one", "root"]):
        yield node, phi, psi, node is tree
