"""Binary trees whose labels remember some siblings and ancestors, and the way back.

A node with the children a b c d becomes, with everything remembered and to the right,
A → a A|<a>, A|<a> → b A|<a_b>, A|<a_b> → c d: the children are generated one by one, and the new
labels hold what was generated. Horizontal order h keeps the last h siblings, and vertical order
v writes the v-1 nearest ancestors behind a label: NP^S, NP^S^TOP (Klein & Manning 2003,
"Accurate unlexicalized parsing", section 2; Johnson 1998).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from nltk.tree import Tree

from inout._core.errors import ArgumentError
from inout.grammars.treebank.walking import is_preterminal, rebuild

_PARENT, _OPEN, _CLOSE, _BETWEEN = "^", "|<", ">", "_"


def binarise(
    tree: Tree,
    *,
    horizontal: int | None = None,
    vertical: int = 1,
    direction: Literal["right", "left"] = "right",
    tags: bool = False,
) -> Tree:
    """The tree with at most two children at every node; `restore` undoes it exactly.

    `horizontal` siblings are remembered by the new nodes (None: all, which keeps the treebank's
    own rules apart), `vertical - 1` ancestors by every phrase, and with `tags` also by the tags of
    words. Direction "right" nests the rest of the children on the right, so siblings on the left
    are remembered; "left" is its mirror image. Unary nodes stay. Labels that contain `^` or `|<`
    raise `ArgumentError`. O(number of nodes).

    >>> tree = Tree.fromstring("(S (NP (DT the) (JJ old) (JJ grey) (NN cat)) (VP (VBD slept)))")
    >>> print(binarise(tree, horizontal=1, vertical=2).pformat(margin=200))
    (S (NP^S (DT the) (NP^S|<DT> (JJ old) (NP^S|<JJ> (JJ grey) (NN cat)))) (VP^S (VBD slept)))
    >>> print(binarise(tree, horizontal=0, direction="left")[0])
    (NP (NP|<> (NP|<> (DT the) (JJ old)) (JJ grey)) (NN cat))
    """
    if horizontal is not None and horizontal < 0:
        raise ArgumentError(f"horizontal must be 0 or more, or None. Got {horizontal} instead")
    if direction not in ("right", "left"):
        raise ArgumentError(f"direction must be 'right' or 'left'. Got {direction!r} instead")
    nest = _nested_right if direction == "right" else _nested_left
    return _remade(tree, vertical, tags, partial(nest, horizontal=horizontal))


def with_ancestors(tree: Tree, *, vertical: int = 2, tags: bool = False) -> Tree:
    """The tree with `vertical - 1` ancestors behind the labels, its children as they are.

    This is the vertical half of `binarise`, with the same options; `restore` undoes it exactly.

    >>> tree = Tree.fromstring("(S (NP (DT the) (JJ old) (NN cat)) (VP (VBD slept)))")
    >>> print(with_ancestors(tree))
    (S (NP^S (DT the) (JJ old) (NN cat)) (VP^S (VBD slept)))
    """
    return _remade(tree, vertical, tags, lambda label, children, names: children)


def _remade(
    tree: Tree,
    vertical: int,
    tags: bool,
    nest: Callable[[str, list[Any], list[str]], list[Any]],
) -> Tree:
    """The tree with ancestors in its labels; `nest` arranges the children of each node."""
    if vertical < 1:
        raise ArgumentError(f"vertical must be at least 1. Got {vertical} instead")
    made = Tree(_checked(tree.label()), [])
    # Old node, new node, the labels of its nearest ancestors from the parent up.
    stack: list[tuple[Tree, Tree, tuple[str, ...]]] = [(tree, made, ())]
    while stack:
        old, new, ancestors = stack.pop()
        above = (old.label(), *ancestors)[: vertical - 1]
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
                children.append(Tree(label + suffix if tags else label, [child[0]]))
            else:
                children.append(Tree(label + suffix, []))
                stack.append((child, children[-1], above))
        new.extend(nest(new.label(), children, names))
    return made


def restore(tree: Tree) -> Tree:
    """The tree before `binarise`: new nodes give way to their children, ancestors are cut off.

    It also turns the parses of a grammar that was read off such trees into trees of the treebank.

    >>> tree = Tree.fromstring("(S (NP^S (DT the) (NP^S|<DT> (JJ old) (NN cat))) (VP^S (VBD ran)))")
    >>> print(restore(tree))
    (S (NP (DT the) (JJ old) (NN cat)) (VP (VBD ran)))
    """
    if _OPEN in tree.label():
        raise ArgumentError(
            f"the root must be a node of the original tree. Got the label {tree.label()!r}, "
            "which binarisation gives to parts of a node"
        )
    return rebuild(tree, _undone)[0]


def _undone(node: Tree, children: list[Any]) -> list[Any]:
    label = original_label(node.label())
    return children if label is None else [Tree(label, children)]


def original_label(label: str) -> str | None:
    """The label that `restore` leaves of this one, or None where the node vanishes.

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


def _nested_right(
    label: str, children: list[Any], names: list[str], horizontal: int | None
) -> list[Any]:
    if len(children) <= 2:
        return children
    rest = children[-2:]
    for done in range(len(children) - 2, 0, -1):
        first = 0 if horizontal is None else max(0, done - horizontal)
        rest = [children[done - 1], Tree(_remembering(label, names[first:done]), rest)]
    return rest


def _nested_left(
    label: str, children: list[Any], names: list[str], horizontal: int | None
) -> list[Any]:
    if len(children) <= 2:
        return children
    rest = children[:2]
    for done in range(2, len(children)):
        last = len(names) if horizontal is None else done + horizontal
        rest = [Tree(_remembering(label, names[done:last]), rest), children[done]]
    return rest


def _remembering(label: str, siblings: list[str]) -> str:
    return f"{label}{_OPEN}{_BETWEEN.join(siblings)}{_CLOSE}"


def _checked(label: str) -> str:
    if _PARENT in label or _OPEN in label:
        raise ArgumentError(
            f"labels must not contain {_PARENT!r} or {_OPEN!r}, which binarisation uses itself. "
            f"Got {label!r} instead"
        )
    return label
