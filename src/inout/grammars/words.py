"""Classes of unknown words by their form, and the vocabulary of known words.

The features are those of the Berkeley parser's signatures (Petrov, Barrett, Thibaux & Klein 2006):
capitals, the beginning of the sentence, digits, hyphens, some English suffixes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from inout._core.checks import expect
from inout._core.errors import ArgumentError

SUFFIXES = ("ed", "ing", "ion", "er", "est", "ly", "ity", "y", "al")
"""English suffixes, tried in this order; the plural -s has a rule of its own."""

_SUFFIX_LENGTH = 5  # shorter words end like this by chance
_NO_PLURAL = "siu"  # glass, this, virus


@dataclass(frozen=True)
class SignatureOptions:
    """Which features a signature has; without any of them there is one class, `prefix`."""

    prefix: str = "UNK"
    case: bool = True
    digits: bool = True
    dash: bool = True
    plural: bool = True
    suffixes: tuple[str, ...] = SUFFIXES

    def is_class(self, name: str) -> bool:
        """Whether a name is that of a class: the prefix, alone or with features behind it."""
        return name == self.prefix or name.startswith(f"{self.prefix}-")


def signature(
    word: str,
    *,
    first: bool = False,
    known_lowercase: bool = False,
    options: SignatureOptions = SignatureOptions(),  # noqa: B008 (frozen)
) -> str:
    """The class of an unknown word.

    `first`: it begins the sentence, where a capital says little; `known_lowercase`: the word in
    small letters is in the vocabulary.

    >>> [signature(word) for word in ("walked", "IL-2", "genes", "1,500", "Tokyo", "well-being")]
    ['UNK-LC-ed', 'UNK-CAPS-NUM-DASH', 'UNK-LC-s', 'UNK-NUM', 'UNK-CAPS', 'UNK-LC-DASH']
    >>> signature("Stunning", first=True), signature("Stunning", first=True, known_lowercase=True)
    ('UNK-INITC-ing', 'UNK-INITC-KNOWNLC-ing')
    """
    capitals = sum(character.isupper() or character.istitle() for character in word)
    has_digit, has_dash = any(map(str.isdigit, word)), "-" in word
    name = options.prefix
    if options.case:
        name += _case(word, capitals, first, known_lowercase)
    if options.digits and has_digit:
        name += "-NUM"
    if options.dash and has_dash:
        name += "-DASH"
    lowered = word.lower()
    if len(lowered) >= 3 and lowered.endswith("s"):
        return name + "-s" if options.plural and lowered[-2] not in _NO_PLURAL else name
    # Names of things such as GM-CSF or p53A end in letters that are no suffix.
    if len(word) >= _SUFFIX_LENGTH and not has_dash and not (has_digit and capitals):
        name += next((f"-{end}" for end in options.suffixes if lowered.endswith(end)), "")
    return name


def _case(word: str, capitals: int, first: bool, known_lowercase: bool) -> str:
    if word[:1].isupper() or word[:1].istitle():
        if first and capitals == 1:
            return "-INITC-KNOWNLC" if known_lowercase else "-INITC"
        return "-CAPS"
    if capitals and not word[:1].isalpha():
        return "-CAPS"
    return "-LC" if any(character.islower() for character in word) else ""


@dataclass(frozen=True)
class Vocabulary:
    """The known words; all others are replaced by their class.

    >>> sentences = [["the", "cat", "walked"], ["the", "cat", "talked"], ["the", "dog", "ran"]]
    >>> vocabulary = Vocabulary.from_sentences(sentences, threshold=1)
    >>> vocabulary.replace(["the", "parrot", "squawked"])
    ['the', 'UNK-LC', 'UNK-LC-ed']
    >>> vocabulary.unknown(["the", "parrot", "squawked"])
    ['parrot', 'squawked']
    """

    words: frozenset[str]  # known words: in a corpus, those seen more often than the threshold
    # How often each class was seen among the rare words of the corpus; 0 where unknown.
    classes: Mapping[str, int] = field(default_factory=dict)
    options: SignatureOptions = SignatureOptions()

    @classmethod
    def from_sentences(
        cls,
        sentences: Iterable[Sequence[str]],
        *,
        threshold: int = 1,
        options: SignatureOptions = SignatureOptions(),  # noqa: B008 (frozen)
    ) -> Vocabulary:
        """The vocabulary of a corpus: words seen at most `threshold` times count as rare.

        Threshold 0 keeps every word. One pass over the sentences.
        """
        expect(threshold >= 0, "threshold", "must be 0 or more", threshold)
        first: Counter[str] = Counter()
        later: Counter[str] = Counter()
        for sentence in sentences:
            first.update(sentence[:1])
            later.update(sentence[1:])
        known = frozenset(word for word, count in (first + later).items() if count > threshold)
        bare = cls(known, {}, options)
        classes: Counter[str] = Counter()
        for counts, is_first in ((first, True), (later, False)):
            for word, count in counts.items():
                if word not in known:
                    classes[bare.class_of(word, first=is_first)] += count
        return cls(known, dict(sorted(classes.items())), options)

    @classmethod
    def from_terminals(
        cls,
        terminals: Iterable[str],
        *,
        options: SignatureOptions = SignatureOptions(),  # noqa: B008 (frozen)
    ) -> Vocabulary:
        """The vocabulary of a grammar: terminals `UNK` and `UNK-…` are classes, all others words.

        A grammar without such terminals has no classes: its unknown words stay unknown.

        >>> vocabulary = Vocabulary.from_terminals(["the", "dog", "UNK", "UNK-LC-s"])
        >>> vocabulary.replace(["the", "cats", "chased", "UNKNOWN", "dog"])
        ['the', 'UNK-LC-s', 'UNK', 'UNK', 'dog']
        """
        names = list(terminals)
        classes = {name: 0 for name in sorted(names) if options.is_class(name)}
        return cls(frozenset(names).difference(classes), classes, options)

    def __contains__(self, word: object) -> bool:
        return word in self.words

    def __len__(self) -> int:
        return len(self.words)

    def class_of(self, word: str, *, first: bool = False) -> str:
        """The class of a word, as if it were unknown.

        If no rare word of the corpus had that class, features are dropped from its end until it is
        one that was seen; if there is none, it is the commonest class (ties go to the fewest
        features).
        """
        known_lowercase = word.lower() in self.words
        name = signature(word, first=first, known_lowercase=known_lowercase, options=self.options)
        if not self.classes or name in self.classes:
            return name
        shorter = name
        while shorter != self.options.prefix:
            shorter = shorter.rpartition("-")[0]
            if shorter in self.classes:
                return shorter
        return max(self.classes, key=lambda other: (self.classes[other], -other.count("-"), other))

    def replace(self, words: Sequence[str]) -> list[str]:
        """The sentence with classes in place of the unknown words.

        Classes are kept, as in a sentence that was replaced before, or sampled from a grammar.
        """
        return [
            word if self._stays(word) else self.class_of(word, first=position == 0)
            for position, word in enumerate(words)
        ]

    def unknown(self, words: Sequence[str]) -> list[str]:
        return [word for word in words if not self._stays(word)]

    def _stays(self, word: str) -> bool:
        return word in self.words or word in self.classes

    def to_dict(self) -> dict[str, Any]:
        """The vocabulary as plain data for JSON; `from_dict` reads it back."""
        options = asdict(self.options)
        options["suffixes"] = list(self.options.suffixes)
        return {"words": sorted(self.words), "classes": dict(self.classes), "options": options}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Vocabulary:
        """The vocabulary that `to_dict` described.

        >>> vocabulary = Vocabulary(frozenset({"a"}), {"UNK": 3})
        >>> Vocabulary.from_dict(vocabulary.to_dict()) == vocabulary
        True
        """
        try:
            options = dict(data["options"])
            options["suffixes"] = tuple(options["suffixes"])
            words, classes = frozenset(data["words"]), dict(data["classes"])
            return cls(words, classes, SignatureOptions(**options))
        except (KeyError, TypeError, ValueError) as error:
            raise ArgumentError(
                "data", f": this is not a description of a vocabulary: {error}"
            ) from error
