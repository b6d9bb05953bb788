"""Random trees for the tests of treebanks: any shape, with unary chains and repeated labels."""

from __future__ import annotations

from hypothesis import strategies as st
from nltk.tree import Tree

PHRASES = ("S", "NP", "VP", "PP", "ADVP", "PRT")
TAGS = ("NN", "VB", ",", ".", ":", "``", "-LRB-")
WORDS = ("a", "dog", "Gene-1", "-LRB-", ",", "*", "naïve", "5\u00a0000")


def trees(
    phrases: tuple[str, ...] = PHRASES, tags: tuple[str, ...] = TAGS, words: tuple[str, ...] = WORDS
) -> st.SearchStrategy[Tree]:
    """Trees in which every word has a tag of its own; the root may be such a tag."""
    tagged = st.builds(lambda tag, word: Tree(tag, [word]), *map(st.sampled_from, (tags, words)))
    return st.recursive(
        tagged,
        lambda below: st.builds(
            Tree, st.sampled_from(phrases), st.lists(below, min_size=1, max_size=6)
        ),
        max_leaves=15,
    )


def mixed_trees() -> st.SearchStrategy[Tree]:
    """Trees with words anywhere."""
    return st.builds(
        Tree,
        st.sampled_from(PHRASES),
        st.lists(trees() | st.sampled_from(WORDS), min_size=1, max_size=6),
    )


def deep_tree(depth: int) -> Tree:
    """A right-branching tree deeper than Python's stack: built, never walked, by nltk."""
    tree = Tree("S", [Tree("NN", ["end"])])
    for _ in range(depth):
        tree = Tree("S", [Tree("NN", ["word"]), tree])
    return tree
