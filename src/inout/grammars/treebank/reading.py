"""Trees from bracketed text, with errors that point to the place, and back to text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from inout._core.errors import ArgumentError, FileError, TreeSyntaxError
from inout._core.files import open_bytes, reason, unreadable
from inout.grammars.tree import PlainTree, Tree, nltk_tree
from inout.io.files import write_text

# The first alternative takes a whole `(TAG word)`, which halves the number of tokens. Only ASCII
# space separates: a no-break space belongs to the word it stands in.
_TOKEN = re.compile(
    r"\(\s*([^\s()]+)\s+([^\s()]+)\s*\)" r"|\(\s*([^\s()]*)" r"|(\))" r"|([^\s()]+)", re.ASCII
)
_TAGGED, _OPEN, _CLOSE = 2, 3, 4  # the last group of each kind of token

# Lines between trees that begin so are comments: ours, NEGRA's, the Penn Treebank's headers.
COMMENTS = ("#", "%%", "*x*")

# What parsers write where they found no tree.
_FAILURE = re.compile(r"\s*(\(\s*\S*\s*(\(\s*\)\s*)*\)\s*)?", re.ASCII)
_SEPARATOR = re.compile(r"[\s()]", re.ASCII)


def parse_trees(
    text: str | Iterable[str],
    *,
    source: str = "<text>",
    root: str | None = None,
    untagged: bool = False,
    plain: bool = False,
) -> Iterator[Tree]:
    """The trees of bracketed text (or of its lines), lazily.

    A tree may span several lines, and a line may contain several trees. The empty outer bracket
    of the Penn Treebank, `( (S ...) )`, is removed, or labelled `root` if that is given.
    Lines between trees that begin with `#`, `%%` or `*x*` are comments. Every word needs a tag of
    its own, `(NN dog)`, unless `untagged` allows words anywhere, as in `(S a (S b) c)`. Trees
    are `nltk.Tree`s, or with `plain` `PlainTree`s.

    Mistakes raise `TreeSyntaxError` with line, column and caret. Time is linear in the text, and
    memory that of one tree.

    >>> for tree in parse_trees("( (S (NP (PRP she))\\n     (VP (VBD slept))) )\\n(X (SYM *))"):
    ...     print(tree)
    (S (NP (PRP she)) (VP (VBD slept)))
    (X (SYM *))
    >>> next(parse_trees("(S (NP (PRP she)) (VP)"))
    Traceback (most recent call last):
    ...
    inout._core.errors.TreeSyntaxError: <text>:1:22: the bracket of VP holds nothing
      (S (NP (PRP she)) (VP)
                           ^
    """
    lines = text.split("\n") if isinstance(text, str) else text
    return _Reader(source, root, untagged, plain).trees(lines)


def read_trees(
    path: str | Path, *, root: str | None = None, untagged: bool = False, plain: bool = False
) -> Iterator[Tree]:
    r"""The trees of a file, plain, `.xz` or `.gz`, read lazily.

    The format and the options are those of `parse_trees`.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "two.mrg"
    >>> _ = path.write_text("# two trees\n(S (VB go))\n(S (VB stop))\n")
    >>> [tree.leaves() for tree in read_trees(path)]
    [['go'], ['stop']]
    """
    return parse_trees(
        read_lines(path), source=str(path), root=root, untagged=untagged, plain=plain
    )


def read_parses(
    path: str | Path, *, root: str | None = None, untagged: bool = False, plain: bool = False
) -> Iterator[Tree | None]:
    r"""The output of a parser: one tree per line, None for an empty line, `(())` or a bare root.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "parses.mrg"
    >>> _ = path.write_text("(S (VB go))\n(())\n(TOP)\n")
    >>> [tree and tree.leaves() for tree in read_parses(path)]
    [['go'], None, None]
    """
    for number, line in enumerate(read_lines(path), 1):
        if line.lstrip().startswith(COMMENTS):
            continue
        if _FAILURE.fullmatch(line):
            yield None
            continue
        trees = list(_Reader(str(path), root, untagged, plain).trees([line], first=number))
        if len(trees) != 1:
            message = f"expected one tree a line. Got {len(trees)}"
            raise TreeSyntaxError(message, line, number, 1, str(path))
        yield trees[0]


class _Reader:
    """The state between two tokens: the open brackets, and where to point in an error."""

    def __init__(self, source: str, root: str | None, untagged: bool, plain: bool) -> None:
        self.source, self.root, self.untagged = source, root, untagged
        self.make = PlainTree if plain else nltk_tree()
        self.line, self.number = "", 0
        self.start = ("", 0, 0)  # line, its number and the column of the tree's first bracket
        self.stack: list[Any] = []  # the open brackets, outermost first
        # By depth: where the first word directly below an open bracket stands.
        self.loose: dict[int, tuple[str, int, int]] = {}

    def trees(self, lines: Iterable[str], first: int = 1) -> Iterator[Tree]:
        stack = self.stack
        for self.number, self.line in enumerate(lines, first):
            if not stack and self.line.lstrip().startswith(COMMENTS):
                continue
            for token in _TOKEN.finditer(self.line):
                kind = token.lastindex
                if kind == _TAGGED:
                    node = self.make(token[1], [token[2]])
                    if stack:
                        stack[-1].append(node)
                    else:
                        yield node
                elif kind == _OPEN:
                    if not stack:
                        self.start = (self.line, self.number, token.start())
                    node = self.make(token[3], [])
                    if stack:
                        stack[-1].append(node)
                    stack.append(node)
                elif kind == _CLOSE:
                    self.check_closing(token.start())
                    node = stack.pop()
                    if not stack:
                        yield self.without_empty_bracket(node, token.start())
                else:
                    self.add_word(token[5], token.start())
        if stack:
            left = "1 bracket is" if len(stack) == 1 else f"{len(stack)} brackets are"
            raise self.error(f"{left} not closed in the tree that begins here", *self.start)

    def check_closing(self, column: int) -> None:
        if not self.stack:
            raise self.error("this bracket closes nothing", self.line, self.number, column)
        node = self.stack[-1]
        if not node:
            name = node.label()
            what = f"the bracket of {name} holds nothing" if name else "the bracket is empty"
            raise self.error(what, self.line, self.number, column)
        if not node.label() and len(self.stack) > 1:
            what = "the bracket that ends here has no label"
            raise self.error(what, self.line, self.number, column)
        # A word that came after something else was refused on the spot.
        if len(node) > 1 and not self.untagged and isinstance(node[0], str):
            raise self.error(_untagged(node[0]), *self.loose[len(self.stack)])

    def add_word(self, word: str, column: int) -> None:
        if not self.stack:
            what = f"expected a tree in brackets. Got {word!r} outside any bracket"
            raise self.error(what, self.line, self.number, column)
        node = self.stack[-1]
        if not node and not node.label():
            node.set_label(word)  # the label stands on the line after its bracket
            return
        if not node:
            self.loose[len(self.stack)] = (self.line, self.number, column)
        elif not self.untagged:
            raise self.error(_untagged(word), self.line, self.number, column)
        node.append(word)

    def without_empty_bracket(self, tree: Tree, column: int) -> Tree:
        if tree.label():
            return tree
        if self.root is not None:
            tree.set_label(self.root)
            return tree
        if len(tree) == 1 and isinstance(tree[0], Tree):
            return tree[0]
        what = f"the outer bracket has no label and {len(tree)} trees in it; `root` would name it"
        raise self.error(what, self.line, self.number, column)

    def error(self, message: str, line: str, number: int, column: int) -> TreeSyntaxError:
        start = self.start[1]
        # A bracket lost on an earlier line is noticed only later: say where that tree began.
        if self.stack and start < number:
            message += f" (in the tree that begins on line {start})"
        return TreeSyntaxError(message, line, number, column + 1, self.source)


def _untagged(word: str) -> str:
    return f"the word {word!r} has no tag of its own; expected something like (NN {word})"


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a UTF-8 file, one at a time; `.xz` and `.gz` files are unpacked on the way.

    Raises `FileError` where the file cannot be read, `TreeSyntaxError` where it is not UTF-8.
    """
    try:
        with open_bytes(Path(path)) as file:
            for number, data in enumerate(file, 1):
                yield _decoded(data, number, str(path))
    except TreeSyntaxError:
        raise
    except unreadable() as error:
        raise FileError(reason(error), file=path) from error


def _decoded(data: bytes, number: int, source: str) -> str:
    # A byte order mark may stand at the beginning of the file, and nowhere else.
    encoding = "utf-8-sig" if number == 1 else "utf-8"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        # utf-8-sig counts its positions from behind the mark.
        data = data.removeprefix(b"\xef\xbb\xbf") if number == 1 else data
        column = len(data[: error.start].decode("utf-8")) + 1
        wrong = data[error.start]
        text = data.decode("utf-8", errors="replace")
        message = f"the file must be UTF-8 text. Got the byte 0x{wrong:02x}"
        raise TreeSyntaxError(message, text, number, column, source) from None


def format_tree(tree: Tree) -> str:
    """The tree in brackets on one line, as `parse_trees` reads it.

    Brackets within words are written -LRB- and -RRB-, as in the Penn Treebank. A label or word
    that is empty or has white space in it, or a label with brackets, raises `ArgumentError`.

    >>> from nltk.tree import Tree
    >>> format_tree(Tree("S", [Tree("NN", ["f(x)"]), Tree("VBZ", ["grows"])]))
    '(S (NN f-LRB-x-RRB-) (VBZ grows))'
    """
    pieces: list[str] = []
    stack = [tree]
    while stack:
        node = stack.pop()
        if node is None:
            pieces.append(")")
        elif isinstance(node, Tree):
            pieces.append(f" ({_checked(node.label(), 'label')}")
            stack.append(None)
            stack.extend(reversed(node))
        else:
            word = str(node).replace("(", "-LRB-").replace(")", "-RRB-")
            pieces.append(f" {_checked(word, 'word')}")
    return "".join(pieces)[1:]


def write_trees(path: str | Path, trees: Iterable[Tree]) -> None:
    """Write the trees to a file, one per line, atomically."""
    write_text(path, "".join(f"{format_tree(tree)}\n" for tree in trees))


def _checked(name: str, kind: str) -> str:
    if not name or _SEPARATOR.search(name):
        raise ArgumentError(
            "tree",
            f": a {kind} in bracketed text must have at least one character, and no white space or "
            f"brackets. Got {name!r} instead",
        )
    return name
