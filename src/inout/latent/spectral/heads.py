"""Head words of constituents, by a table of head rules for Penn labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from inout.latent.layout import Numbers
from inout.latent.skeleton import Skeleton
from inout.latent.trees import SkeletalTrees

Side = Literal["left", "right"]
# Head rules of a category, by priority: the side to search from, and labels of children.
HeadRules = tuple[tuple[Side, str], ...]

_VERBS = "VBD VBN MD VBZ VB VBG VBP TO VP"
_NOUNS = "NN NNS NNP NNPS NX POS JJR"

PENN: Mapping[str, HeadRules] = {
    "ADJP": (("left", "NNS QP NN $ ADVP JJ VBN VBG ADJP JJR NP JJS DT FW RBR RBS SBAR RB"),),
    "ADVP": (("right", "RB RBR RBS FW ADVP TO CD JJR JJ IN NP JJS NN"),),
    "CONJP": (("right", "CC RB IN"),),
    "FRAG": (("right", "S VP NP PP ADJP ADVP"),),
    "LST": (("right", "LS CD :"),),
    "NP": (
        ("right", _NOUNS),
        ("left", "NP"),
        ("right", "PRP CD ADJP PRN QP"),
        ("right", "JJ JJS RB DT FW VBG"),
    ),
    "NX": (("right", _NOUNS), ("left", "NX NP"), ("right", "CD JJ FW")),
    "PP": (("right", "IN TO VBG VBN RP FW PP"),),
    "PRN": (("left", "S SBAR VP NP PP ADJP ADVP CD NN"),),
    "PRT": (("right", "RP"),),
    "QP": (("left", "CD NCD NN NNS $ IN JJ RB DT JJR JJS QP"),),
    "RRC": (("right", "VP NP ADVP ADJP PP"),),
    "S": (("left", "VP S SBAR ADJP UCP NP"),),
    "SBAR": (("left", "IN WHNP WHPP WHADVP WHADJP DT S SQ SINV SBAR FRAG"),),
    "SBARQ": (("left", "SQ S SINV SBARQ FRAG"),),
    "SINV": (("left", "VBZ VBD VBP VB MD VP S SINV ADJP NP"),),
    "SQ": (("left", "VBZ VBD VBP VB MD VP SQ"),),
    "UCP": (("right", "NP ADJP VP S PP ADVP"),),
    "VP": (("left", _VERBS), ("left", "ADJP NN NNS NP")),
    "WHADJP": (("left", "CC WRB JJ ADJP"),),
    "WHADVP": (("right", "CC WRB"),),
    "WHNP": (("left", "WDT WP WP$ WHADJP WHPP WHNP"), ("right", _NOUNS)),
    "WHPP": (("right", "IN TO FW"),),
}
"""After the table of Collins (1999), appendix A."""

_UNWANTED = 1 << 20  # even: ties go to the right child


@dataclass(frozen=True)
class HeadTable:
    """Which child is the head: the one of the highest priority for its parent's category.

    Labels of collapsed chains and of nodes added by binarisation are understood: S+VP is an S to
    its parent and a VP to its children, and the candidates below NP|<> compete in the NP above
    it, so that the head is that of the tree before binarisation. If no rule applies, or the
    category has none, the rightmost child is the head. In rules of NP, NX and WHNP all labels
    have the same priority, and ties go to the side of the rule; elsewhere earlier labels win.
    """

    wishes: Mapping[str, HeadRules] = field(default_factory=lambda: PENN)
    equal: frozenset[str] = frozenset({"NP", "NX", "WHNP"})

    @cached_property
    def _grades(self) -> dict[str, dict[str, int]]:
        """By category and label: its rank as a head, best first; odd if ties go to the left."""
        grades: dict[str, dict[str, int]] = {}
        for category, wishes in self.wishes.items():
            found: dict[str, int] = {}
            grade = 0
            for side, labels in wishes:
                for label in labels.split():
                    found.setdefault(label, 2 * grade + (side == "left"))
                    grade += category not in self.equal
                grade += 1
            grades[category] = found
        return grades

    def grade(self, category: str, label: str) -> int:
        """The rank of a label as head of a category, best first; odd if ties go to the left."""
        return self._grades.get(category, {}).get(label, _UNWANTED)


def head_leaves(trees: SkeletalTrees, table: HeadTable | None = None) -> Numbers:
    """The number of the leaf that is the head of each node: [v]; leaves are their own.

    One vectorised step for each height of the trees.

    >>> from nltk.tree import Tree
    >>> tree = Tree.fromstring("(S (NP (DT the) (NP|<> (JJ old) (NN cat))) (VP (VBD sat) (RB up)))")
    >>> trees = SkeletalTrees.of([tree])
    >>> leaves = head_leaves(trees)
    >>> [trees.skeleton.nonterminals[trees.labels[v]] for v in leaves]
    ['VBD', 'NN', 'DT', 'NN', 'JJ', 'NN', 'VBD', 'VBD', 'RB']
    """
    of_rule, is_new = _tables(trees.skeleton, table or HeadTable())
    count = len(trees.labels)
    leaves = np.arange(count)
    grades = np.full(count, _UNWANTED)  # of the best candidate below a node, to the node's category
    order = np.argsort(trees.heights, kind="stable")
    ends = np.cumsum(np.bincount(trees.heights)) if count else np.zeros(0, np.int64)
    for start, end in pairwise(ends.tolist()):
        nodes = order[start:end]
        rules, lefts, rights = trees.rules[nodes], trees.lefts[nodes], trees.rights[nodes]
        left = np.where(is_new[rules, 0], grades[lefts], of_rule[rules, 0])
        right = np.where(is_new[rules, 1], grades[rights], of_rule[rules, 1])
        chosen = (left < right) | ((left == right) & (left % 2 == 1))
        leaves[nodes] = leaves[np.where(chosen, lefts, rights)]
        grades[nodes] = np.minimum(left, right)
    return leaves


def _tables(skeleton: Skeleton, table: HeadTable) -> tuple[Numbers, NDArray[np.bool_]]:
    """For the children of each rule [r 2]: their grades, and whether they are new nodes."""
    as_parent = [_base(name).split("+")[-1].split("^")[0] for name in skeleton.nonterminals]
    as_child = [_base(name).split("+")[0].split("^")[0] for name in skeleton.nonterminals]
    grades = np.zeros((len(skeleton.binary), 2), np.int64)
    new = np.zeros((len(skeleton.binary), 2), np.bool_)
    for r, (a, *children) in enumerate(skeleton.binary.tolist()):
        for side, child in enumerate(children):
            name = skeleton.nonterminals[child]
            grades[r, side] = table.grade(as_parent[a], as_child[child])
            # X|<…> below X is no constituent of its own, and its candidates are those of X.
            new[r, side] = "|<" in name and _base(name) == _base(skeleton.nonterminals[a])
    return grades, new


def _base(name: str) -> str:
    """The label of the node that was binarised."""
    return name.split("|<")[0]
