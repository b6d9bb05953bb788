"""Grammars read off treebanks: against counts by hand, in fractions, and by enumeration."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import islice, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.tree import Tree

from inout._core.errors import ArgumentError
from inout.grammars import Grammar, Markovisation, Rule, Terminal, diagnose
from inout.grammars.parser.parser import Parser
from inout.grammars.treebank import (
    clean,
    leaves,
    markovise,
    original_label,
    preorder,
    read_trees,
    restore,
    training_trees,
    with_root,
)
from inout.grammars.words import SignatureOptions, Vocabulary, signature
from tests.oracle.random_trees import trees
from tests.support import assert_close

ORDERS = st.fixed_dictionaries(
    {
        "horizontal": st.none() | st.integers(0, 2),
        "vertical": st.integers(1, 3),
        "direction": st.sampled_from(["right", "left"]),
        "tags": st.booleans(),
        "binary": st.booleans(),
    }
).map(lambda options: Markovisation(**options))
SHARES = st.sampled_from([Fraction(0), Fraction(1, 4), Fraction(1, 2), Fraction(1)])
# Everything but what binarisation writes itself: "^" and "|<".
ODD_LABELS = (
    "PRP$",
    "-LRB-",
    "ADVP|PRT",
    "<",
    ">",
    "_",
    "A_B",
    "'",
    '"',
    "''",
    "é",
    "NP>",
    "|",
    "0",
)
ODD_WORDS = (
    "a",
    "UNK",
    "UNK-LC",
    "UNKNOWN",
    "Dogs",
    "dogs",
    "Dog",
    "1",
    "%",
    "'",
    "^",
    "|<",
    "ran",
)


def tree(text: str) -> Tree:
    return Tree.fromstring(text)


def weights(grammar: Grammar) -> dict[Rule, float]:
    return dict(zip(grammar.rules, grammar.log_weights.exp().tolist(), strict=True))


def as_rule(text: str) -> Rule:
    left, right = text.split(" -> ")
    symbols = (Terminal(s[1:-1]) if s[0] == "'" else s for s in right.split())
    return Rule(left, tuple(symbols))


def productions(node: Tree) -> Iterator[Rule]:
    """The rules of a tree, by recursion: words become terminals, nodes their labels."""
    symbols = (child.label() if isinstance(child, Tree) else Terminal(child) for child in node)
    yield Rule(node.label(), tuple(symbols))
    for child in node:
        if isinstance(child, Tree):
            yield from productions(child)


def relabelled(node: Tree, words: Iterator[str]) -> Tree:
    """The same tree over other words."""
    return Tree(
        node.label(),
        [relabelled(child, words) if isinstance(child, Tree) else next(words) for child in node],
    )


def exact_weights(made: list[Tree], threshold: int, share: Fraction) -> dict[Rule, Fraction]:
    """Relative frequencies when every tree stands there twice, with its words and with classes.

    A tree with classes in place of the rare words weighs `share`, the other one 1 − share.
    """
    frequency = Counter(word for one in made for word in one.leaves())
    is_class = {word: word == "UNK" or word.startswith("UNK-") for word in frequency}
    rare = {word for word, n in frequency.items() if n <= threshold and not is_class[word]}
    known = {word for word in frequency if not is_class[word]} - (rare if share == 1 else set())
    counts: defaultdict[Rule, Fraction] = defaultdict(Fraction)
    for one in made:
        replaced = [
            signature(word, first=n == 0, known_lowercase=word.lower() in known)
            if word in rare
            else word
            for n, word in enumerate(one.leaves())
        ]
        for version, weight in ((one, 1 - share), (relabelled(one, iter(replaced)), share)):
            for rule in productions(version):
                counts[rule] += weight
    totals: defaultdict[str, Fraction] = defaultdict(Fraction)
    for rule, count in counts.items():
        totals[rule.lhs] += count
    return {rule: count / totals[rule.lhs] for rule, count in counts.items() if count}


# By hand


SMALL = [
    tree("(S (NP (DT The) (NN cat)) (VP (VBD slept)))"),
    tree("(S (NP (DT the) (JJ old) (JJ grey) (NN cat)) (VP (VBD saw) (NP (DT the) (NN dogs))))"),
]


def test_weights_by_hand():
    grammar = Grammar.from_treebank(SMALL, Markovisation(horizontal=1, vertical=1))
    expected = {
        "TOP -> S": 1,
        "S -> NP VP": 1,
        "NP -> DT NN": 2 / 3,
        "NP -> DT NP|<DT>": 1 / 3,
        "NP|<DT> -> JJ NP|<JJ>": 1,
        "NP|<JJ> -> JJ NN": 1,
        "VP -> VBD": 1 / 2,
        "VP -> VBD NP": 1 / 2,
        "DT -> 'the'": 2 / 3,
        "DT -> 'The'": 1 / 6,
        "DT -> 'UNK-INITC-KNOWNLC'": 1 / 6,
        "NN -> 'cat'": 2 / 3,
        "NN -> 'dogs'": 1 / 6,
        "NN -> 'UNK-LC-s'": 1 / 6,
        "VBD -> 'slept'": 1 / 4,
        "VBD -> 'saw'": 1 / 4,
        "VBD -> 'UNK-LC'": 1 / 2,
        "JJ -> 'old'": 1 / 4,
        "JJ -> 'grey'": 1 / 4,
        "JJ -> 'UNK-LC'": 1 / 2,
    }
    found = weights(grammar)
    assert set(found) == set(map(as_rule, expected))
    for text, weight in expected.items():
        assert_close(found[as_rule(text)], weight)
    assert grammar.start == "TOP"


def test_shares_by_hand():
    only_classes = weights(Grammar.from_treebank(SMALL, unknown_share=1.0, unknown_threshold=1))
    lexicon = {str(rule): weight for rule, weight in only_classes.items() if rule.is_lexical}
    assert lexicon == pytest.approx(
        {
            "DT -> 'the'": 2 / 3,
            "DT -> 'UNK-INITC-KNOWNLC'": 1 / 3,
            "NN -> 'cat'": 2 / 3,
            "NN -> 'UNK-LC-s'": 1 / 3,
            "VBD -> 'UNK-LC'": 1,
            "JJ -> 'UNK-LC'": 1,
        }
    )
    for options in ({"unknown_share": 0.0}, {"unknown_threshold": 0}):
        plain = Grammar.from_treebank(SMALL, **options)
        assert not Vocabulary.from_terminals(plain.terminals).classes
        assert set(plain.terminals) == {word for one in SMALL for word in one.leaves()}


@pytest.mark.parametrize(("share", "name"), [(0.5, "UNK-INITC-KNOWNLC-s"), (1.0, "UNK-INITC-s")])
def test_classes_know_the_words_that_the_grammar_knows(share: float, name: str):
    """Training and parsing must put a word into the same class."""
    grammar = Grammar.from_treebank([tree("(S (NN Dogs) (NN dogs))")], unknown_share=share)
    vocabulary = Vocabulary.from_terminals(grammar.terminals)
    assert {*vocabulary.classes} == {name, "UNK-LC-s"}
    assert vocabulary.class_of("Dogs", first=True) == name


def test_long_rules_stay_whole_if_wanted():
    found = weights(
        Grammar.from_treebank(SMALL, Markovisation(binary=False, vertical=2), unknown_threshold=0)
    )
    assert_close(found[as_rule("NP^S -> DT JJ JJ NN")], 0.5)
    assert_close(found[as_rule("NP^VP -> DT NN")], 1.0)
    phrases, tags = {"TOP", "S^TOP", "NP^S", "NP^VP", "VP^S"}, {"DT", "NN", "JJ", "VBD"}
    assert {rule.lhs for rule in found} == phrases | tags


def test_several_roots_have_one_start_symbol():
    mixed = ["(S (VB go))", "(TOP (FRAG (NN home)))", "( (S (VB stop)) )", "(ROOT (S (VB go)))"]
    found = weights(
        Grammar.from_treebank(map(tree, mixed), Markovisation(vertical=1), start="ROOT")
    )
    assert found[as_rule("ROOT -> S")] == 0.75
    assert found[as_rule("ROOT -> FRAG")] == 0.25
    unclean = Grammar.from_treebank([tree("(S (NP-SBJ (NN it)))")], clean=False, start="S")
    assert [rule.lhs for rule in unclean.rules][:2] == ["S", "NP-SBJ^S"]


def test_rules_are_in_groups_the_commonest_first():
    grammar = Grammar.from_treebank(SMALL, Markovisation(horizontal=1, vertical=1))
    lefts = [rule.lhs for rule in grammar.rules]
    assert lefts == sorted(lefts, key=lefts.index)
    for numbers in grammar.rules_by_left_side.values():
        values = grammar.numpy_log_weights[numbers].tolist()
        assert values == sorted(values, reverse=True)


def test_only_traces_are_left_out_and_nothing_is_refused():
    traces = tree("(S (NP (-NONE- *)))")
    assert len(Grammar.from_treebank([traces, tree("(S (VB go))")], unknown_threshold=0)) == 3
    with pytest.raises(ArgumentError, match="trees must hold at least one tree with words"):
        Grammar.from_treebank([traces])
    with pytest.raises(ArgumentError, match="trees must hold at least one"):
        Grammar.from_treebank([])


def test_wrong_options_are_refused(unchecked: None):
    for wrong in (-0.1, 1.5, math.nan):
        with pytest.raises(ArgumentError, match="unknown_share must be from 0 to 1"):
            Grammar.from_treebank(SMALL, unknown_share=wrong)
    with pytest.raises(ArgumentError, match="unknown_threshold must be 0 or more"):
        Grammar.from_treebank(SMALL, unknown_threshold=-1)
    with pytest.raises(ArgumentError, match="horizontal must be 0 or more"):
        Grammar.from_treebank(SMALL, Markovisation(horizontal=-1))
    with pytest.raises(ArgumentError, match="vertical must be at least 1"):
        Grammar.from_treebank(SMALL, Markovisation(binary=False, vertical=0))
    with pytest.raises(ArgumentError, match="markovisation must be a Markovisation"):
        Grammar.from_treebank(SMALL, 2)
    with pytest.raises(ArgumentError, match="the word 'a' beside others"):
        Grammar.from_treebank([tree("(S (NN x) a)")])


# In fractions


@given(
    st.lists(trees(words=ODD_WORDS), min_size=1, max_size=4),
    ORDERS,
    st.booleans(),
    st.integers(0, 3),
    SHARES,
)
def test_weights_are_relative_frequencies(
    treebank: list[Tree], orders: Markovisation, clean: bool, threshold: int, share: Fraction
):
    grammar = Grammar.from_treebank(
        treebank, orders, clean=clean, unknown_threshold=threshold, unknown_share=float(share)
    )
    made = list(training_trees(treebank, orders, clean=clean))
    expected = exact_weights(made, threshold, share)
    found = weights(grammar)
    assert set(found) == set(expected)
    for rule, weight in expected.items():
        assert_close(found[rule], float(weight))
    sums: Counter[str] = Counter()
    for rule, weight in found.items():
        sums[rule.lhs] += weight
    assert_close(list(sums.values()), [1.0] * len(sums))


@pytest.mark.exhaustive
@given(
    st.lists(trees(words=ODD_WORDS), min_size=1, max_size=4),
    ORDERS,
    st.booleans(),
    st.integers(0, 3),
    SHARES,
)
def test_every_training_tree_is_possible(
    treebank: list[Tree], orders: Markovisation, clean: bool, threshold: int, share: Fraction
):
    """Over its own words where the grammar knows them, and over the classes of the others."""
    grammar = Grammar.from_treebank(
        treebank, orders, clean=clean, unknown_threshold=threshold, unknown_share=float(share)
    )
    found = weights(grammar)
    vocabulary = Vocabulary.from_terminals(grammar.terminals)
    for one in training_trees(treebank, orders, clean=clean):
        words = vocabulary.replace(leaves(one))
        assert one.label() == grammar.start
        assert all(found[rule] > 0 for rule in productions(relabelled(one, iter(words))))
        if share < 1:
            assert words == leaves(one)
    assert diagnose(grammar).consistency.consistent is not False


@given(st.lists(trees(), min_size=1, max_size=4), st.sampled_from(["right", "left"]))
def test_with_all_siblings_remembered_trees_are_as_likely_as_with_whole_rules(
    treebank: list[Tree], direction: str
):
    """A relative-frequency grammar's product over the nodes does not feel lossless binarisation."""
    keep = Markovisation(vertical=2, tags=True, binary=False)
    nest = Markovisation(horizontal=None, vertical=2, direction=direction, tags=True)
    whole = weights(Grammar.from_treebank(treebank, keep))
    binary = weights(Grammar.from_treebank(treebank, nest))
    for one in treebank:
        (flat,) = training_trees([one], keep)
        (nested,) = training_trees([one], nest)
        assert_close(
            math.fsum(math.log(binary[rule]) for rule in productions(nested)),
            math.fsum(math.log(whole[rule]) for rule in productions(flat)),
        )


# By enumeration


def enumerate_trees(grammar: Grammar, symbol: str | Terminal) -> Iterator[tuple[object, float]]:
    """All trees of a symbol of a grammar that is not recursive, with their probabilities."""
    if isinstance(symbol, Terminal):
        yield symbol.text, 1.0
        return
    for rule, weight in weights(grammar).items():
        if rule.lhs != symbol:
            continue
        for below in product(*(list(enumerate_trees(grammar, child)) for child in rule.rhs)):
            probability = weight * math.prod(p for _, p in below)
            yield Tree(symbol, [child for child, _ in below]), probability


def test_all_trees_of_a_tiny_treebank():
    """With horizontal order 0, what follows a sibling depends on the parent only."""
    treebank = [tree("(S (A a) (B b) (A a))"), tree("(S (B b) (A a))")]
    grammar = Grammar.from_treebank(treebank, Markovisation(horizontal=0), unknown_threshold=0)
    found: Counter[str] = Counter()
    for one, probability in enumerate_trees(grammar, grammar.start):
        found[str(restore(one))] += probability
    assert_close(sum(found.values()), 1.0)
    assert found == {"(TOP (S (A a) (B b) (A a)))": 0.5, "(TOP (S (B b) (A a)))": 0.5}
    treebank = [tree("(S (A a) (B b) (A a) (C c))"), tree("(S (B b) (A a) (B b))")]
    forgetful = Grammar.from_treebank(
        treebank, Markovisation(horizontal=0, vertical=1), unknown_threshold=0
    )
    # S → A S|<> or B S|<>, S|<> → B S|<> or A C or A B, each as often as it was seen: the first
    # tree used the recursive rule once, so longer sentences have become possible.
    found = weights(forgetful)
    assert_close([found[as_rule(f"S -> {x} S|<>")] for x in "AB"], [0.5, 0.5])
    right = ["B S|<>", "A C", "A B"]
    assert_close([found[as_rule(f"S|<> -> {x}")] for x in right], [1 / 3] * 3)
    remembering = Grammar.from_treebank(treebank, Markovisation(horizontal=1), unknown_threshold=0)
    all_trees = {str(restore(t)): p for t, p in enumerate_trees(remembering, "TOP")}
    # After B: either A C or A B, whichever tree the B stood in.
    assert all_trees == pytest.approx(
        {
            "(TOP (S (A a) (B b) (A a) (C c)))": 0.25,
            "(TOP (S (A a) (B b) (A a) (B b)))": 0.25,
            "(TOP (S (B b) (A a) (C c)))": 0.25,
            "(TOP (S (B b) (A a) (B b)))": 0.25,
        }
    )


# The way back


@given(
    st.lists(trees(phrases=ODD_LABELS, tags=ODD_LABELS, words=ODD_WORDS), min_size=1, max_size=3),
    ORDERS,
    st.booleans(),
)
def test_training_trees_come_back(treebank: list[Tree], orders: Markovisation, cleaned: bool):
    made = list(training_trees(treebank, orders, start="<top>", clean=cleaned))
    for one, original in zip(made, treebank, strict=True):
        prepared = clean(original, root="<top>") if cleaned else None
        assert restore(one) == (prepared or with_root(original, "<top>"))


def test_unary_chains_stay():
    chain = tree("(S (S (VP (VP (VB go)))))")
    (made,) = training_trees([chain], Markovisation(vertical=2), clean=False)
    assert made == tree("(TOP (S^TOP (S^S (VP^S (VP^VP (VB go))))))")
    assert restore(made) == Tree("TOP", [chain])
    (merged,) = training_trees([chain], Markovisation(vertical=1))
    assert merged == tree("(TOP (S (VP (VB go))))")


@given(trees(), st.integers(1, 4), st.booleans())
def test_ancestors_alone_are_those_of_binarisation(original: Tree, vertical: int, tags: bool):
    orders = Markovisation(horizontal=0, vertical=vertical, tags=tags)
    annotated = markovise(original, replace(orders, binary=False))
    assert restore(annotated) == original
    binary = markovise(original, orders)
    wanted = [node.label() for node in binary.subtrees() if "|<" not in node.label()]
    assert [node.label() for node in annotated.subtrees()] == wanted


@given(trees(), ORDERS)
def test_original_labels_are_those_that_restoring_leaves(original: Tree, orders: Markovisation):
    (made,) = training_trees([original], orders)
    left = [original_label(node.label()) for node in preorder(made)]
    wanted = [node.label() for node in preorder(restore(made))]
    assert [label for label in left if label is not None] == wanted


def test_parses_come_back_as_trees_of_the_treebank():
    for options in ({"horizontal": 1, "vertical": 2}, {"horizontal": 0}, {"binary": False}):
        parser = Parser(Grammar.from_treebank(SMALL, Markovisation(**options)))
        for one in SMALL:
            assert restore(parser.parse(one.leaves()).tree) == Tree("TOP", [one])
        # Unknown words stand for their classes in the chart, and for themselves in the tree.
        unseen = parser.parse(["the", "slow", "old", "parrots", "barked"])
        assert unseen.unknown == ("slow", "parrots", "barked")
        assert restore(unseen.tree) == tree(
            "(TOP (S (NP (DT the) (JJ slow) (JJ old) (NN parrots)) (VP (VBD barked))))"
        )
        recalled = parser.min_risk(SMALL[1].leaves(), label=original_label).tree
        assert recalled == Tree("TOP", [SMALL[1]])


def test_log_z_of_a_sentence_of_classes():
    """p(UNK-LC) of a verb is 1/2, and of the intransitive verb phrase too."""
    parser = Parser(Grammar.from_treebank(SMALL, Markovisation(vertical=1, horizontal=1)))
    for sentence in (["the", "cat", "UNK-LC"], ["the", "cat", "sneezed"]):
        # NP → DT NN 2/3, DT → the 2/3, NN → cat 2/3, VP → VBD 1/2, VBD → UNK-LC 1/2
        assert_close(parser.log_partition(sentence).exp(), (2 / 3) ** 3 / 4)


# Words and classes among terminals


def test_terminals_are_words_or_classes():
    vocabulary = Vocabulary.from_terminals(["the", "UNK", "UNK-LC", "UNKNOWN", "UNK-LC-ing"])
    assert vocabulary.words == {"the", "UNKNOWN"}
    assert list(vocabulary.classes) == ["UNK", "UNK-LC", "UNK-LC-ing"]
    sentence = ["Walking", "the", "dogs", "slowly", "UNKNOWN", "1", "UNK-LC", "running"]
    assert vocabulary.replace(sentence) == [
        "UNK",  # UNK-INITC-ing is not there, nor is UNK-INITC
        "the",
        "UNK-LC",
        "UNK-LC",
        "UNKNOWN",
        "UNK",
        "UNK-LC",
        "UNK-LC-ing",
    ]
    assert vocabulary.replace(vocabulary.replace(sentence)) == vocabulary.replace(sentence)
    assert vocabulary.unknown(sentence) == ["Walking", "dogs", "slowly", "1", "running"]


def test_without_the_plain_class_the_one_with_the_fewest_features_takes_the_rest():
    vocabulary = Vocabulary.from_terminals(["UNK-LC-s", "UNK-CAPS", "UNK-CAPS-NUM"])
    assert vocabulary.replace(["%"]) == ["UNK-CAPS"]
    none = Vocabulary.from_terminals(["the"])
    assert (none.classes, none.replace(["dogs"])) == ({}, ["UNK-LC-s"])


def test_another_prefix():
    options = SignatureOptions(prefix="rare")
    vocabulary = Vocabulary.from_terminals(["rarely", "rare", "rare-LC", "UNK"], options=options)
    assert vocabulary.words == {"rarely", "UNK"}
    assert vocabulary.replace(["dogs", "rarely"]) == ["rare-LC", "rarely"]


# Data


def test_a_grammar_of_genia(data_dir: Path, unchecked: None):
    path = data_dir / "genia" / "genia.dev.mrg.xz"
    if not path.is_file():
        pytest.skip(f"no file {path}")
    treebank = list(islice(read_trees(path), 400))
    grammar = Grammar.from_treebank(treebank, Markovisation(horizontal=1, vertical=2))
    found = diagnose(grammar)
    assert (found.undefined, found.unreachable, found.unproductive) == ((), (), ())
    assert (found.improper, found.consistency.consistent) == ({}, True)
    # Relative frequencies give the treebank's own mean length (Chi & Geman 1998).
    assert found.expectations is not None
    mean = sum(len(leaves(one)) for one in treebank) / len(treebank)
    assert_close(found.expectations.length, mean, rtol=1e-8)
    known = weights(grammar)
    for one in training_trees(treebank, Markovisation(horizontal=1, vertical=2)):
        assert all(rule in known for rule in productions(one))
