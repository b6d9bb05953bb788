"""`ContextSet`: what may be remembered of the labels so far."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import product

from inout._core.checks import at_least, expect
from inout._core.errors import ArgumentError

Context = tuple[int | None, ...]
STAR = "⋆"


class ContextSet(Collection[Context]):
    """An immutable set of contexts over sequences of one length.

    A context is a tuple of label numbers, or None for "anything" (⋆), one for each position, and
    stands for the set of sequences that it matches. Two invariants are checked: *coverage*, it
    contains ⋆…⋆; and *closure*, the intersection of two contexts is a context or empty. So every
    set of sequences has one smallest context that contains it.

    In a chain of such sets a beginning does not go to the smallest context that matches it, but
    step by step, by `refine`: what an earlier context has forgotten stays forgotten.

    `contexts` has them in lexicographic order, the last position first and ⋆ after all labels;
    the coarsest one, ⋆…⋆, is always the last. Checking costs O(m² n) for m contexts.

    >>> a, b = 0, 1
    >>> contexts = ContextSet([(None, None), (None, a), (b, a)])
    >>> contexts.pictures("ab")
    ['ba', '⋆a', '⋆⋆']
    >>> contexts.smallest((a, a))
    (None, 0)
    >>> try:
    ...     ContextSet([(None, None), (None, a), (b, None)])
    ... except ArgumentError as error:
    ...     print(error)
    contexts must be closed: ⋆0 and 1⋆ have 10 in common, which is missing

    Steinhardt & Liang, "Reified context models" (2015), section 3.
    """

    def __init__(self, contexts: Iterable[Sequence[int | None]]) -> None:
        self.contexts = _in_order(contexts)
        self._members = frozenset(self.contexts)
        coarsest = (None,) * self.length
        if coarsest not in self._members:
            raise ArgumentError(
                "contexts",
                f"must cover all sequences of length {self.length}: {picture(coarsest)} is missing",
            )
        for number, one in enumerate(self.contexts):
            for other in self.contexts[:number]:
                both = intersection(one, other)
                if both is not None and both not in self._members:
                    raise ArgumentError(
                        "contexts",
                        f"must be closed: {picture(other)} and {picture(one)} have "
                        f"{picture(both)} in common, which is missing",
                    )

    @classmethod
    def closed(cls, contexts: Iterable[Sequence[int | None]], length: int) -> ContextSet:
        """The smallest context set with these contexts: adds ⋆…⋆ and their intersections.

        >>> ContextSet.closed([(None, 0), (1, None)], 2).pictures("ab")
        ['ba', '⋆a', 'b⋆', '⋆⋆']
        """
        members: set[Context] = {(None,) * at_least("length", length, 0)}
        # What each further context shares with the closed set so far keeps that set closed.
        for context in _in_order([*contexts, *members]):
            members |= {both for c in members if (both := intersection(c, context)) is not None}
        return cls(members)

    @classmethod
    def markov(cls, order: int, position: int, labels: int) -> ContextSet:
        """The contexts of an n-th order chain after `position` labels: the last `order` of them.

        With ⋆…⋆, which is never reached, there are 1 + labels ** min(order, position).

        >>> ContextSet.markov(1, 3, 2).pictures("ab")
        ['⋆⋆a', '⋆⋆b', '⋆⋆⋆']
        """
        order, position = at_least("order", order, 0), at_least("position", position, 0)
        fixed = min(order, position)
        free = (None,) * (position - fixed)
        every = product(range(at_least("labels", labels, 1)), repeat=fixed)
        return cls([(None,) * position, *(free + suffix for suffix in every)])

    @property
    def length(self) -> int:
        return len(self.contexts[0])

    @cached_property
    def numbers(self) -> dict[Context, int]:
        """The place of every context in `contexts`."""
        return {context: number for number, context in enumerate(self.contexts)}

    @property
    def sizes(self) -> list[int]:
        """How many labels each context remembers, its length in the paper's words."""
        return [fixed_labels(context) for context in self.contexts]

    def smallest(self, pattern: Sequence[int | None]) -> Context:
        """The smallest context that contains all sequences of a pattern."""
        pattern = tuple(pattern)
        good = len(pattern) == self.length
        expect(good, "pattern", f"must have {self.length} symbols", pattern)
        # It fixes every label that another one around the pattern does, so it comes before them.
        return next(context for context in self.contexts if contains(context, pattern))

    def refine(self, context: Sequence[int | None], label: int, following: ContextSet) -> Context:
        """f(context, label): the smallest context of the following set that contains them.

        >>> after = ContextSet([(None, None), (None, 0)])
        >>> ContextSet([(None,), (1,)]).refine((1,), 0, after)
        (None, 0)
        """
        context = tuple(context)
        expect(context in self._members, "context", "must be one of this set", context)
        longer = self.length + 1
        wanted = f"must have contexts of length {longer}"
        expect(following.length == longer, "following", wanted, following.length)
        return following.smallest((*context, at_least("label", label, 0)))

    def pictures(self, labels: Sequence[object] | None = None) -> list[str]:
        """Every context as text, such as ⋆⋆a; labels by their names, or else by their numbers."""
        return [picture(context, labels) for context in self.contexts]

    def __len__(self) -> int:
        return len(self.contexts)

    def __iter__(self) -> Iterator[Context]:
        return iter(self.contexts)

    def __contains__(self, context: object) -> bool:
        return context in self._members

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ContextSet) and self.contexts == other.contexts

    def __hash__(self) -> int:
        return hash(self.contexts)

    def __repr__(self) -> str:
        shown = " ".join(self.pictures()[:8])
        more = " …" if len(self) > 8 else ""
        return f"ContextSet({len(self)} contexts of length {self.length}: {shown}{more})"


def _in_order(contexts: Iterable[Sequence[int | None]]) -> tuple[Context, ...]:
    """The contexts without repetitions, in order; all of one length, with labels of at least 0."""
    given = {tuple(context) for context in contexts}
    if not given:
        raise ArgumentError("contexts", "must cover all sequences: ⋆…⋆ is missing. Got no contexts")
    lengths = sorted({len(context) for context in given})
    expect(len(lengths) == 1, "contexts", "must have one length", lengths)
    for context in given:
        for label in context:
            if label is not None:
                at_least(f"a label of {context}", label, 0)
    return tuple(sorted(given, key=order_key))


def order_key(context: Context) -> tuple[tuple[bool, int], ...]:
    """What contexts are sorted by: the last label first, ⋆ after all labels."""
    return tuple((label is None, label or 0) for label in reversed(context))


def contains(context: Context, pattern: Context) -> bool:
    """Whether all sequences of the pattern are in the context."""
    return all(c is None or c == p for c, p in zip(context, pattern, strict=True))


def intersection(one: Context, other: Context) -> Context | None:
    """The context of the sequences that two contexts have in common, None if there are none."""
    if any(a is not None and b is not None and a != b for a, b in zip(one, other, strict=True)):
        return None
    return tuple(b if a is None else a for a, b in zip(one, other, strict=True))


def fixed_labels(context: Context) -> int:
    """How many labels a context remembers."""
    return sum(label is not None for label in context)


def picture(context: Context, labels: Sequence[object] | None = None) -> str:
    """A context as text; names longer than one character, and numbers, are set apart."""
    names = [STAR if x is None else str(x if labels is None else labels[x]) for x in context]
    gap = " " if any(len(name) > 1 for name in names) else ""
    return gap.join(names)
