"""Feature functions of inside and outside trees, for spectral learning.

A feature function takes `SkeletalTrees` and returns one integer for each node that identifies what
it saw there, or -1 for nothing. Integers are compared only among nodes of the same label, and are
otherwise arbitrary; each (label, function, integer) is one indicator feature. An inside function
must only look at the subtree of a node, an outside function only at the rest of its tree: the
proofs need it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from inout._core.errors import ArgumentError
from inout.latent.layout import Numbers
from inout.latent.spectral.heads import HeadTable, head_leaves
from inout.latent.trees import SkeletalTrees

FeatureFunction = Callable[[SkeletalTrees], Numbers]


@dataclass(frozen=True)
class Features:
    """Named inside and outside feature functions, and how large their features are (default 1).

    The size matters where there are fewer latent values than directions: the largest are kept.

    >>> few = Features({"rule": rule}, {"parent": parent_rule})
    >>> list(few.with_inside(length=span_length).inside)
    ['rule', 'length']
    """

    inside: Mapping[str, FeatureFunction]
    outside: Mapping[str, FeatureFunction]
    sizes: Mapping[str, float] = field(default_factory=dict)

    def with_inside(self, **functions: FeatureFunction) -> Features:
        return replace(self, inside={**self.inside, **functions})

    def with_outside(self, **functions: FeatureFunction) -> Features:
        return replace(self, outside={**self.outside, **functions})

    def without(self, *names: str) -> Features:
        """These without the functions of some names."""
        unknown = set(names) - set(self.inside) - set(self.outside)
        if unknown:
            raise ArgumentError("names", f"must be of features. Got {', '.join(sorted(unknown))}")
        return replace(
            self,
            inside={name: f for name, f in self.inside.items() if name not in names},
            outside={name: f for name, f in self.outside.items() if name not in names},
        )


def pair(first: Numbers, second: Numbers) -> Numbers:
    """One number for each pair of numbers; -1 where either is -1.

    >>> pair(np.array([0, 1, -1]), np.array([2, 0, 1])).tolist()
    [2, 3, -1]
    """
    fires = (first >= 0) & (second >= 0)
    firsts, seconds = (_ranked(part, fires) for part in (first, second))
    width = int(seconds.max(initial=0)) + 1
    return np.where(fires, firsts * width + seconds, -1)


def _ranked(numbers: Numbers, fires: NDArray[np.bool_]) -> Numbers:
    """The numbers where `fires`, or their ranks if products of them could overflow."""
    wide = np.where(fires, numbers, 0).astype(np.int64)
    if wide.max(initial=0) < 1 << 31:
        return wide
    return np.unique(wide, return_inverse=True)[1].astype(np.int64)


def both(first: FeatureFunction, second: FeatureFunction) -> FeatureFunction:
    """The conjunction of two feature functions; -1 where either is."""
    return lambda trees: pair(first(trees), second(trees))


def rule(trees: SkeletalTrees) -> Numbers:
    """The rule of the node; above a word, that is the word."""
    return np.where(trees.is_leaf, trees.rules + len(trees.skeleton.binary), trees.rules)


def left_rule(trees: SkeletalTrees) -> Numbers:
    """The rules of the node and of its left child."""
    return pair(rule(trees), _there(rule(trees), trees.lefts))


def right_rule(trees: SkeletalTrees) -> Numbers:
    """The rules of the node and of its right child."""
    return pair(rule(trees), _there(rule(trees), trees.rights))


def span_length(trees: SkeletalTrees) -> Numbers:
    """The number of words below the node, roughly; nothing above a word."""
    return np.where(trees.is_leaf, -1, binned(trees.ends - trees.starts))


def head_word(trees: SkeletalTrees, table: HeadTable | None = None) -> Numbers:
    """The word that is the head of the node; nothing above a word."""
    leaves = head_leaves(trees, table)
    words = trees.skeleton.lexical[trees.rules[leaves], 1].astype(np.int64)
    return np.where(trees.is_leaf, -1, words)


def head_tag(trees: SkeletalTrees, table: HeadTable | None = None) -> Numbers:
    """The label above the head of the node; nothing above a word."""
    return np.where(trees.is_leaf, -1, trees.labels[head_leaves(trees, table)])


def suffix(trees: SkeletalTrees, length: int = 3) -> Numbers:
    """The last letters of the word, above words."""
    numbers: dict[str, int] = {}
    of_word = [numbers.setdefault(word[-length:], len(numbers)) for word in trees.skeleton.words]
    found = np.full(len(trees.labels), -1, np.int64)
    found[trees.is_leaf] = np.array(of_word, np.int64)[trees.words]
    return found


def parent_rule(trees: SkeletalTrees) -> Numbers:
    """The rule of the parent and which child the node is; roots are a case of their own."""
    up = trees.parents
    return np.where(up < 0, 0, 1 + 2 * _there(trees.rules, up) + _is_right(trees))


def grandparent_rule(trees: SkeletalTrees) -> Numbers:
    """`parent_rule` of the node and of its parent."""
    own = parent_rule(trees)
    return pair(own, 1 + _there(own, trees.parents))


def ancestors(trees: SkeletalTrees) -> Numbers:
    """The labels of parent, grandparent and great-grandparent, and which child each one is."""
    side = np.where(trees.parents < 0, 0, 1 + _is_right(trees))
    found = side
    at = trees.parents
    for _ in range(3):
        found = pair(found, 1 + _there(trees.labels, at))
        found = pair(found, 1 + _there(side, at))
        at = _there(trees.parents, at)
    return found


def sibling_rule(trees: SkeletalTrees) -> Numbers:
    """The rule of the other child of the parent, and which child that is."""
    return _of_sibling(trees, rule(trees))


def governor_word(trees: SkeletalTrees, table: HeadTable | None = None) -> Numbers:
    """The head word of the lowest ancestor that has another head than the node."""
    leaves = _governors(trees, table)
    return _there(trees.skeleton.lexical[:, 1].astype(np.int64), _there(trees.rules, leaves))


def governor_tag(trees: SkeletalTrees, table: HeadTable | None = None) -> Numbers:
    """The tag of that word; 0 if the head of the sentence is below the node."""
    return 1 + _there(trees.labels, _governors(trees, table))


def sibling_head(trees: SkeletalTrees, table: HeadTable | None = None) -> Numbers:
    """The label above the head of the other child of the parent, and which child that is."""
    return _of_sibling(trees, trees.labels[head_leaves(trees, table)])


def binned(counts: Numbers) -> Numbers:
    """Small counts as they are, larger ones in bins that widen.

    >>> binned(np.array([0, 1, 2, 3, 4, 5, 6, 8, 12, 20, 30, 50])).tolist()
    [0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10]
    """
    return np.searchsorted(np.array([0, 1, 2, 3, 4, 5, 7, 10, 15, 25, 40]), counts, "right") - 1


_OF_WORDS = (
    *("head_word", "span_length", "first_word", "last_word", "first_tag", "last_tag", "suffix"),
    *("word_before", "word_after", "tag_before", "tag_after", "width_before", "width_after"),
    *("governor_word", "governor_tag", "sibling_head"),
)

DEFAULT = Features(
    inside={
        "rule": rule,
        "left_label": lambda trees: _there(trees.labels, trees.lefts),
        "right_label": lambda trees: _there(trees.labels, trees.rights),
        "left_rule": left_rule,
        "right_rule": right_rule,
        "head_word": head_word,
        "head_tag": head_tag,
        "span_length": span_length,
        "first_word": lambda trees: _below(trees, trees.words, trees.starts),
        "last_word": lambda trees: _below(trees, trees.words, trees.ends - 1),
        "first_tag": lambda trees: _below(trees, trees.tags, trees.starts),
        "last_tag": lambda trees: _below(trees, trees.tags, trees.ends - 1),
        "suffix": suffix,
    },
    outside={
        "parent_rule": parent_rule,
        "grandparent_rule": grandparent_rule,
        "ancestors": ancestors,
        "sibling_label": lambda trees: _of_sibling(trees, trees.labels),
        "sibling_rule": sibling_rule,
        "word_before": lambda trees: _around(trees, trees.words, trees.starts - 1),
        "word_after": lambda trees: _around(trees, trees.words, trees.ends),
        "tag_before": lambda trees: _around(trees, trees.tags, trees.starts - 1),
        "tag_after": lambda trees: _around(trees, trees.tags, trees.ends),
        "width_before": lambda trees: binned(trees.starts),
        "width_after": lambda trees: binned(_lengths(trees) - trees.ends),
        "governor_word": governor_word,
        "governor_tag": governor_tag,
        "sibling_head": sibling_head,
    },
    sizes=dict.fromkeys(_OF_WORDS, 0.5),
)
"""The features of Cohen, Stratos, Collins, Foster & Ungar (2013), section 4.1, and a few more.

Those of words and lengths are half as large as those of rules and labels near the node: with few
latent values, it is the rules that they should tell apart.
"""

PAPER = Features(
    inside={"rule": rule},
    outside={name: DEFAULT.outside[name] for name in ("parent_rule", "word_after")},
)
"""The features that Cohen et al. (2012) name as examples, in section 7.1."""


def _there(values: Numbers, nodes: Numbers) -> Numbers:
    """The values at other nodes; -1 if there is none."""
    return np.where(nodes >= 0, values[np.maximum(nodes, 0)], -1)


def _is_right(trees: SkeletalTrees) -> NDArray[np.bool_]:
    return np.equal(_there(trees.rights, trees.parents), np.arange(len(trees.labels)))


def _of_sibling(trees: SkeletalTrees, values: Numbers) -> Numbers:
    """The value at the other child of the parent, and which child that is."""
    up, is_right = trees.parents, _is_right(trees)
    siblings = np.where(is_right, _there(trees.lefts, up), _there(trees.rights, up))
    return pair(_there(values, siblings), is_right.astype(np.int64))


def _lengths(trees: SkeletalTrees) -> Numbers:
    """The number of words of the tree of each node."""
    return (np.diff(trees.offsets)[trees.trees] + 1) // 2


def _positions(trees: SkeletalTrees, places: Numbers) -> Numbers:
    """Positions in each node's sentence as positions in the words of all trees."""
    lengths = (np.diff(trees.offsets) + 1) // 2
    firsts: Numbers = np.cumsum(lengths) - lengths
    return firsts[trees.trees] + places


def _below(trees: SkeletalTrees, values: Numbers, places: Numbers) -> Numbers:
    """The value at a position of the sentence; nothing above a word."""
    return np.where(trees.is_leaf, -1, values[_positions(trees, places)])


def _around(trees: SkeletalTrees, values: Numbers, places: Numbers) -> Numbers:
    """1 + the value at a position of the sentence, 0 outside it."""
    within = (places >= 0) & (places < _lengths(trees))
    return np.where(within, 1 + values[_positions(trees, np.where(within, places, 0))], 0)


def _governors(trees: SkeletalTrees, table: HeadTable | None) -> Numbers:
    """The head of the lowest ancestor that has another head than the node; -1 if none has.

    Labels alone decide which child supplies a head, so for a constituent this is known outside
    of it. For a node that binarisation added it depends on the inside, which outside features
    must not see: such a node gets the governor of its constituent.
    """
    heads, up = head_leaves(trees, table), trees.parents
    nodes = np.arange(len(up))
    highest = _climb(np.where((up >= 0) & (_there(heads, up) == heads), up, nodes))
    is_new = np.array(["|<" in name for name in trees.skeleton.nonterminals], np.bool_)
    constituent = _climb(np.where(is_new[trees.labels] & (up >= 0), up, nodes))
    return _there(heads, up[highest[constituent]])


def _climb(steps: Numbers) -> Numbers:
    """The node that each one reaches by following steps to a fixed point."""
    while True:
        further = steps[steps]
        if (further == steps).all():
            return steps
        steps = further
