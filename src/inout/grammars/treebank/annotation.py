"""Markovisation: binary trees whose labels remember siblings and ancestors, and its inverse.

A node with the children a b c d becomes, with everything remembered and to the right,
A → a A|<a>, A|<a> → b A|<a_b>, A|<a_b> → c d: the children are generated one by one, and the new
labels hold what was generated. Horizontal order h keeps the last h siblings, and vertical order
v writes the v-1 nearest ancestors behind a label: NP^S, NP^S^TOP (Klein & Manning 2003,
"Accurate unlexicalized parsing", section 2; Johnson 1998).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from inout._core.errors import ArgumentError
from inout.grammars.markovisation import Markovisation
from inout.grammars.tree import Tree, is_preterminal, like, rebuild

_PARENT, _OPEN, _CLOSE, _BETWEEN = "^", "|<", ">", "_"


def markovise(tree: Tree, markovisation: Markovisation) -> Tree:
    """The tree with context in its labels, binary by default; `restore` undoes it exactly.

    Unary nodes stay. Labels that contain `^` or `|<` raise `ArgumentError`. O(number of nodes).

    >>> from nltk.tree import Tree
    >>> tree = Tree.fromstring("(S (NP (DT the) (JJ old) (JJ grey) (NN cat)) (VP (VBD slept)))")
    >>> print(markovise(tree, Markovisation(horizontal=1, vertical=2)).pformat(margin=200))
    (S (NP^S (DT the) (NP^S|<DT> (JJ old) (NP^S|<JJ> (JJ grey) (NN cat)))) (VP^S (VBD slept)))
    >>> print(markovise(tree, Markovisation(horizontal=0, vertical=1, direction="left"))[0])
    (NP (NP|<> (NP|<> (DT the) (JJ old)) (JJ grey)) (NN cat))
    >>> print(markovise(tree, Markovisation(binary=False)).pformat(margin=200))
    (S (NP^S (DT the) (JJ old) (JJ grey) (NN cat)) (VP^S (VBD slept)))
    """
    if not isinstance(markovisation, Markovisation):
        wanted = "must be a Markovisation"
        raise ArgumentError("markovisation", f"{wanted}. Got {type(markovisation).__name__}")
    made = like(tree, _checked(tree.label()), [])
    # Old node, new node, the labels of its nearest ancestors from the parent up.
    stack: list[tuple[Tree, Tree, tuple[str, ...]]] = [(tree, made, ())]
    while stack:
        old, new, ancestors = stack.pop()
        above = (old.label(), *ancestors)[: markovisation.vertical - 1]
        suffix = "".join(_PARENT + label for label in above)
        children: list[Any] = []
        names: list[str] = []
        for child in old:
            if not isinstance(child, Tree):
                children.append(child)
                names.append(f"'{child}'")
                continue
            label = _checked(child.label())
            names.append(label)
            if is_preterminal(child):
                tag = label + suffix if markovisation.tags else label
                children.append(like(tree, tag, [child[0]]))
            else:
                children.append(like(tree, label + suffix, []))
                stack.append((child, children[-1], above))
        if markovisation.binary:
            children = _nested(new, children, names, markovisation)
        new.extend(children)
    return made


def restore(tree: Tree) -> Tree:
    """Undo `markovise`: new nodes are replaced by their children, ancestors are cut off.

    It also turns the parses of a grammar read off such trees into trees of the treebank.

    >>> from nltk.tree import Tree
    >>> tree = Tree.fromstring("(S (NP^S (DT the) (NP^S|<DT> (JJ old) (NN cat))) (VP^S (VBD ran)))")
    >>> print(restore(tree))
    (S (NP (DT the) (JJ old) (NN cat)) (VP (VBD ran)))
    """
    if _OPEN in tree.label():
        given = f"the label {tree.label()!r}, which binarisation gives to parts of a node"
        raise ArgumentError("tree", f": the root must be a node of the original tree. Got {given}")
    return rebuild(tree, _undone)[0]


def _undone(node: Tree, children: list[Any]) -> list[Any]:
    label = original_label(node.label())
    return children if label is None else [like(node, label, children)]


def original_label(label: str) -> str | None:
    """The label that `restore` gives in place of this one, or None if it removes the node.

    Decoders that choose constituents by their labels, such as `Parser.min_risk`, take this as
    their `label`, so that NP^S and NP^VP count as the same.

    >>> [original_label(label) for label in ("NP^S", "NP^S|<DT_JJ>", "NN")]
    ['NP', None, 'NN']
    """
    return None if _OPEN in label else label.partition(_PARENT)[0]


def coarse_label(label: str) -> str:
    """The label that horizontal order 0 and vertical order 1 would have given to the same node.

    >>> [coarse_label(label) for label in ("NP^S", "NP^S|<DT_JJ>", "NN")]
    ['NP', 'NP|<>', 'NN']
    """
    name, _, siblings = label.partition(_OPEN)
    return name.partition(_PARENT)[0] + (_OPEN + _CLOSE if siblings else "")


def _nested(node: Tree, children: list[Any], names: list[str], how: Markovisation) -> list[Any]:
    """At most two children in place of any number; to the left is the mirror image of the right."""
    if len(children) <= 2:
        return children
    order = slice(None, None, 1 if how.direction == "right" else -1)
    children, names = children[order], names[order]
    rest = children[-2:]
    for done in range(len(children) - 2, 0, -1):
        first = 0 if how.horizontal is None else max(0, done - how.horizontal)
        siblings = _BETWEEN.join(names[first:done][order])
        label = f"{node.label()}{_OPEN}{siblings}{_CLOSE}"
        rest = [children[done - 1], like(node, label, rest[order])]
    return rest[order]


def _checked(label: str) -> str:
    if _PARENT in label or _OPEN in label:
        raise ArgumentError(
            "tree",
            f": labels must not contain {_PARENT!r} or {_OPEN!r}, which binarisation uses itself. "
            f"Got {label!r} instead",
        )
    return label


def collapse_unary(
    tree: Tree, *, separator: str = "+", tags: bool = False, root: bool = False
) -> Tree:
    """The tree with one node for every chain of nodes that have a single child.

    S → VP → VBD NP becomes S+VP → VBD NP. A chain ends above the tag of a word, unless `tags`,
    and begins below the root, unless `root`. `expand_unary` undoes it exactly, so a label that
    contains the separator already raises `ArgumentError`.

    >>> from nltk.tree import Tree
    >>> tree = Tree.fromstring("(TOP (S (VP (VB go) (NP (NN home)))))")
    >>> print(collapse_unary(tree))
    (TOP (S+VP (VB go) (NP (NN home))))
    >>> print(collapse_unary(tree, tags=True, root=True))
    (TOP+S+VP (VB go) (NP+NN home))
    """
    if not separator:
        raise ArgumentError("separator", "must have at least one character. Got '' instead")
    top = None if root else tree
    return rebuild(tree, partial(_joined, separator=separator, tags=tags, top=top))[0]


def _joined(
    node: Tree, children: list[Any], *, separator: str, tags: bool, top: Tree | None
) -> list[Any]:
    label = node.label()
    if separator in label:
        raise ArgumentError(
            "separator",
            f"must be a text that no label contains, or the chains could not be told "
            f"apart again. Got {separator!r}, which is in the label {label!r}",
        )
    # The child made here may have one word and yet be a chain; the old one tells.
    chain = len(node) == 1 and isinstance(node[0], Tree) and (tags or not is_preterminal(node[0]))
    if not chain or node is top:
        return [like(node, label, children)]
    (only,) = children
    return [like(node, f"{label}{separator}{only.label()}", list(only))]


def expand_unary(tree: Tree, *, separator: str = "+") -> Tree:
    """The tree with every joined label as a chain of nodes again: undoes `collapse_unary`.

    >>> from nltk.tree import Tree
    >>> print(expand_unary(Tree.fromstring("(TOP+S+VP (VB go) (NP+NN home))")))
    (TOP (S (VP (VB go) (NP (NN home)))))
    """
    return rebuild(tree, partial(_chained, separator=separator))[0]


def _chained(node: Tree, children: list[Any], *, separator: str) -> list[Any]:
    parts = node.label().split(separator)
    if "" in parts:  # the tag of a plus sign, say, which was never joined
        parts = [node.label()]
    for label in reversed(parts):
        children = [like(node, label, children)]
    return children
