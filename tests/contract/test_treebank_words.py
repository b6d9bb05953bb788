"""Classes of unknown words: worked examples of each feature, and what a vocabulary promises."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inout._core.errors import ArgumentError
from inout.grammars.words import SignatureOptions, Vocabulary, signature


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("cell", "UNK-LC"),
        ("cells", "UNK-LC-s"),
        ("glass", "UNK-LC"),
        ("virus", "UNK-LC"),
        ("this", "UNK-LC"),
        ("is", "UNK-LC"),
        ("binding", "UNK-LC-ing"),
        ("king", "UNK-LC"),
        ("activity", "UNK-LC-ity"),
        ("rapidly", "UNK-LC-ly"),
        ("happy", "UNK-LC-y"),
        ("greatest", "UNK-LC-est"),
        ("viral", "UNK-LC-al"),
        ("relation", "UNK-LC-ion"),
        ("Tokyo", "UNK-CAPS"),
        ("NATO", "UNK-CAPS"),
        ("mRNA", "UNK-LC"),
        ("1,500", "UNK-NUM"),
        ("IL-2", "UNK-CAPS-NUM-DASH"),
        ("IL-2-induced", "UNK-CAPS-NUM-DASH"),
        ("2A", "UNK-CAPS-NUM"),
        ("'Tis", "UNK-CAPS"),
        ("p53ing", "UNK-LC-NUM-ing"),
        ("P53ing", "UNK-CAPS-NUM"),
        ("%", "UNK"),
        ("", "UNK"),
    ],
)
def test_signatures(word: str, expected: str):
    assert signature(word) == expected


def test_the_beginning_of_a_sentence():
    assert signature("Stunned", first=True) == "UNK-INITC-ed"
    assert signature("Stunned", first=True, known_lowercase=True) == "UNK-INITC-KNOWNLC-ed"
    assert signature("NATO", first=True) == "UNK-CAPS"
    assert signature("stunned", first=True) == signature("stunned")


def test_features_can_be_left_out():
    bare = SignatureOptions("?", case=False, digits=False, dash=False, plural=False, suffixes=())
    for word in ("IL-2", "walked", "cells", "Tokyo"):
        assert signature(word, first=True, options=bare) == "?"
    german = SignatureOptions(suffixes=("ung", "heit"))
    assert signature("Freiheit", options=german) == "UNK-CAPS-heit"


def test_rare_words_become_classes():
    sentences = [["The", "cat", "walked"], ["The", "cat", "Walked"], ["Walked", "the", "-2"]]
    vocabulary = Vocabulary.from_sentences(iter(sentences), threshold=1)
    assert vocabulary.words == {"The", "cat", "Walked"}
    assert vocabulary.classes == {"UNK-LC": 1, "UNK-LC-ed": 1, "UNK-NUM-DASH": 1}
    assert vocabulary.replace(["The", "dog", "talked"]) == ["The", "UNK-LC", "UNK-LC-ed"]
    assert "cat" in vocabulary
    assert "dog" not in vocabulary
    assert len(vocabulary) == 3
    assert vocabulary.unknown(["The", "dog", "dog"]) == ["dog", "dog"]
    everything = Vocabulary.from_sentences(sentences, threshold=0)
    assert everything.classes == {}
    assert [everything.replace(words) for words in sentences] == sentences
    with pytest.raises(ArgumentError, match="threshold must be 0 or more"):
        Vocabulary.from_sentences(sentences, threshold=-1)


def test_classes_never_seen_give_way_to_shorter_ones():
    vocabulary = Vocabulary(frozenset({"the"}), {"UNK-LC": 2, "UNK-NUM": 5})
    assert vocabulary.class_of("walked") == "UNK-LC"
    assert vocabulary.class_of("well-beings") == "UNK-LC"
    # Nothing of UNK-CAPS was ever seen: the commonest class.
    assert vocabulary.class_of("Tokyo") == "UNK-NUM"
    assert vocabulary.class_of("The", first=True) == "UNK-NUM"


WORDS = st.text(alphabet="aAdegilnsy1-.,ß", min_size=1, max_size=8)


@given(st.lists(st.lists(WORDS, max_size=6), max_size=6), st.integers(0, 3))
def test_every_word_of_the_corpus_stands_for_itself_or_for_a_class_that_was_counted(
    sentences: list[list[str]], threshold: int
):
    vocabulary = Vocabulary.from_sentences(sentences, threshold=threshold)
    seen: dict[str, int] = {}
    for sentence in sentences:
        for old, new in zip(sentence, vocabulary.replace(sentence), strict=True):
            if old in vocabulary:
                assert new == old
            else:
                seen[new] = seen.get(new, 0) + 1
    assert seen == vocabulary.classes
    told = json.loads(json.dumps(vocabulary.to_dict()))
    assert Vocabulary.from_dict(told) == vocabulary


@given(WORDS, st.booleans())
def test_any_word_gets_a_class_that_was_seen(word: str, first: bool):
    vocabulary = Vocabulary(frozenset(), {"UNK-LC": 1, "UNK-CAPS-DASH": 1})
    assert vocabulary.class_of(word, first=first) in vocabulary.classes


def test_wrong_descriptions_are_refused():
    for data in ({}, {"words": [], "classes": {}, "options": {"suffixes": [], "colour": 1}}):
        with pytest.raises(ArgumentError, match="not a description of a vocabulary"):
            Vocabulary.from_dict(data)
