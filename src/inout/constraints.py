"""Hard constraints on labels, for the layers in `inout.nn`: what may follow what, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from inout._core.checks import expect


class SequenceConstraints(NamedTuple):
    """Which labels may follow each other [s s], come first [s] and come last [s]."""

    transitions: Bool[Tensor, "s s"]
    start: Bool[Tensor, " s"]
    end: Bool[Tensor, " s"]


class SpanConstraints(NamedTuple):
    """Which labels [s] single words may have, longer spans, and the span of a whole sentence."""

    words: Bool[Tensor, " s"]
    phrases: Bool[Tensor, " s"]
    root: Bool[Tensor, " s"]


class ArcConstraints(NamedTuple):
    """Which labels [s] arcs between words may have, and arcs from the root."""

    arcs: Bool[Tensor, " s"]
    root: Bool[Tensor, " s"]


def bio(labels: Sequence[str]) -> SequenceConstraints:
    """Chunks B-X I-X I-X …: an I-X follows a B-X or an I-X.

    >>> allowed = bio(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"])
    >>> allowed.transitions.int()  # from, to
    tensor([[1, 1, 0, 1, 0],
            [1, 1, 1, 1, 0],
            [1, 1, 1, 1, 0],
            [1, 1, 0, 1, 1],
            [1, 1, 0, 1, 1]], dtype=torch.int32)
    >>> allowed.start.int()
    tensor([1, 1, 0, 1, 0], dtype=torch.int32)

    Also called IOB2. Labels may be without types: O, B, I.
    """
    return _sequence(labels, "OBI", lambda _, continues, after: after != "I" or continues)


def iob1(labels: Sequence[str]) -> SequenceConstraints:
    """Chunks I-X I-X …, the first B-X right after another chunk of the same type, only there.

    >>> iob1(["O", "B-PER", "I-PER"]).transitions.int()  # a B-PER follows no O
    tensor([[1, 0, 1],
            [1, 1, 1],
            [1, 1, 1]], dtype=torch.int32)

    Ramshaw & Marcus, "Text chunking using transformation-based learning" (1995).
    """
    return _sequence(labels, "OBI", lambda _, continues, after: after != "B" or continues)


def bioes(labels: Sequence[str]) -> SequenceConstraints:
    """Chunks S-X of one word and B-X I-X … E-X of several.

    >>> allowed = bioes(["O", "B-PER", "I-PER", "E-PER", "S-PER"])
    >>> allowed.transitions[1].int()  # from B-PER
    tensor([0, 0, 1, 1, 0], dtype=torch.int32)
    >>> allowed.end.int()
    tensor([1, 0, 0, 1, 1], dtype=torch.int32)
    """

    def follows(before: str, continues: bool, after: str) -> bool:
        if before in "BI":
            return continues and after in "IE"
        return after in "OBS"

    return _sequence(labels, "OBIES", follows)


def spans(
    labels: Sequence[str],
    words: Iterable[str] | None = None,
    phrases: Iterable[str] | None = None,
    root: Iterable[str] | None = None,
) -> SpanConstraints:
    """The labels that single words, longer spans and whole sentences may have; None: all.

    >>> spans(["S", "NP", "word"], words=["word"], phrases=["S", "NP"], root=["S"])
    SpanConstraints(words=tensor([False, False,  True]), phrases=tensor([ True,  True, False]),
                    root=tensor([ True, False, False]))
    """
    given = {"words": words, "phrases": phrases, "root": root}
    return SpanConstraints(**{name: _among(name, labels, some) for name, some in given.items()})


def arcs(labels: Sequence[str], root: Iterable[str] = ("root",)) -> ArcConstraints:
    """Arcs from the root have these labels, and no other arc has: as in Universal Dependencies.

    >>> arcs(["root", "nsubj", "obj"])
    ArcConstraints(arcs=tensor([False,  True,  True]), root=tensor([ True, False, False]))
    """
    of_root = _among("root", labels, root)
    return ArcConstraints(~of_root, of_root)


def _sequence(
    labels: Sequence[str], letters: str, follows: Callable[[str, bool, str], bool]
) -> SequenceConstraints:
    """The constraints of a scheme. Before the first label and after the last, all is as with O.

    `follows` has the letters of a label and the next, and whether both are of one chunk's type.
    """
    _refuse_bad_labels(labels)
    parts = []
    for label in labels:
        letter, hyphen, kind = label.partition("-")
        good = len(letter) == 1 and letter in letters and (letter != "O" or not hyphen)
        wanted = f"must be O or one of {', '.join(letters[1:])}, with a type as in B-PER or without"
        expect(good, "labels", wanted, label)
        parts.append((letter, kind))

    def allowed(before: tuple[str, str], after: tuple[str, str]) -> bool:
        continues = before[0] in "BI" and before[1] == after[1]
        return follows(before[0], continues, after[0])

    outside = ("O", "")
    return SequenceConstraints(
        torch.tensor([[allowed(before, after) for after in parts] for before in parts]),
        torch.tensor([allowed(outside, after) for after in parts]),
        torch.tensor([allowed(before, outside) for before in parts]),
    )


def _among(name: str, labels: Sequence[str], some: Iterable[str] | None) -> Bool[Tensor, " s"]:
    """Which of the labels are among some of them; all, if None."""
    _refuse_bad_labels(labels)
    chosen = set(labels if some is None else some)
    unknown = sorted(chosen - set(labels))
    expect(not unknown, name, "must be among the labels", unknown)
    return torch.tensor([label in chosen for label in labels])


def _refuse_bad_labels(labels: Sequence[str]) -> None:
    good = not isinstance(labels, str) and all(isinstance(label, str) for label in labels)
    expect(good and len(labels) > 0, "labels", "must be a list of strings", labels)
    twice = sorted({label for label in labels if labels.count(label) > 1})
    expect(not twice, "labels", "must be all different", twice)
