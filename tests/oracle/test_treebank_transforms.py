"""Transforms of trees: what they make in worked examples, and that the way back is exact."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.tree import Tree

from inout._core.errors import ArgumentError
from inout.grammars import Markovisation
from inout.grammars.treebank import (
    base_label,
    clean,
    coarse_label,
    collapse_unary,
    count_productions,
    drop_empty,
    drop_punctuation,
    expand_unary,
    format_tree,
    leaves,
    markovise,
    merge_repeats,
    parse_trees,
    preorder,
    read_trees,
    restore,
    strip_functions,
    with_root,
    without_root,
)
from inout.grammars.words import Vocabulary
from tests.oracle.random_trees import deep_tree, mixed_trees, trees

ORDERS = st.fixed_dictionaries(
    {
        "horizontal": st.none() | st.integers(0, 3),
        "vertical": st.integers(1, 4),
        "direction": st.sampled_from(["right", "left"]),
        "tags": st.booleans(),
    }
).map(lambda options: Markovisation(**options))
LOSSLESS = Markovisation(horizontal=None, vertical=1)


def tree(text: str) -> Tree:
    return Tree.fromstring(text)


# Cleaning


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("NP-SBJ-1", "NP"),
        ("NP=2", "NP"),
        ("ADVP-LOC=3", "ADVP"),
        ("WHNP-1", "WHNP"),
        ("-LRB-", "-LRB-"),
        ("-NONE-", "-NONE-"),
        ("--", "--"),
        ("=", "="),
        ("PRP$", "PRP$"),
        ("ADVP|PRT", "ADVP|PRT"),
        ("", ""),
    ],
)
def test_base_labels(label: str, expected: str):
    assert base_label(label) == expected


def test_a_sentence_of_the_penn_treebank_is_cleaned():
    raw = tree(
        "( (S (NP-SBJ-1 (NP (NNP Mr.) (NNP Vinken)) (, ,)) (VP (VBZ is) (VP (VBN said)"
        " (S (NP-SBJ (-NONE- *-1)) (VP (TO to) (VP (VB go) (SBAR (-NONE- 0) (S (-NONE- *T*-2)))"
        " (NP-TMP (NP (NN today))))))) ) (-LRB- -LRB-) (. .)) )"
    )
    before = raw.copy(deep=True)
    assert clean(raw) == tree(
        "(TOP (S (NP (NP (NNP Mr.) (NNP Vinken)) (, ,)) (VP (VBZ is) (VP (VBN said)"
        " (S (VP (TO to) (VP (VB go) (NP (NN today))))))) (-LRB- -LRB-) (. .)))"
    )
    assert clean(raw, keep=["TMP"], punctuation=False, root=None) == tree(
        "( (S (NP (NNP Mr.) (NNP Vinken)) (VP (VBZ is) (VP (VBN said)"
        " (S (VP (TO to) (VP (VB go) (NP-TMP (NP (NN today)))))))) (-LRB- -LRB-)) )"
    )
    assert raw == before
    kept = clean(raw, functions=True, empty=(), repeats=True)
    assert kept is not None
    assert [len(leaves(kept)), kept.label()] == [len(leaves(raw)), "TOP"]


def test_a_tree_of_traces_leaves_nothing():
    traces = tree("(S (NP (-NONE- *)) (VP (-NONE- *?*)))")
    assert drop_empty(traces) is None
    assert clean(traces) is None
    assert drop_punctuation(tree("(X (: --) (. .))")) is None


def test_repeats_merge_in_chains_of_any_length_but_not_with_words():
    assert merge_repeats(tree("(NP (NP (NP (NP (NN a)))))")) == tree("(NP (NN a))")
    assert merge_repeats(tree("(S (, ,) (NP (NP (NN a)) (NN b)))")) == tree(
        "(S (, ,) (NP (NP (NN a)) (NN b)))"
    )


def test_roots():
    wide = tree("( (S (VB go)) (S (VB stop)))")
    assert with_root(wide, "ROOT") == tree("(ROOT (S (VB go)) (S (VB stop)))")
    assert without_root(wide) == wide
    assert with_root(tree("(X (VB go))"), "X") == tree("(X (VB go))")
    with pytest.raises(ArgumentError, match="root must be a label"):
        with_root(wide, "")


@given(trees())
def test_cleaning_makes_new_trees_and_twice_is_once(original: Tree):
    before = original.copy(deep=True)
    once = clean(original)
    assert once is not None
    assert clean(once) == once
    assert leaves(once) == original.leaves()
    mine = {id(node) for node in preorder(once)}
    assert not mine & {id(node) for node in original.subtrees()}
    assert original == before


# Unary chains


@given(mixed_trees() | trees(), st.booleans(), st.booleans())
def test_unary_chains_come_back(original: Tree, tags: bool, root: bool):
    collapsed = collapse_unary(original, tags=tags, root=root)
    assert expand_unary(collapsed) == original
    for node in preorder(collapsed):
        if len(node) == 1 and isinstance(node[0], Tree):
            # What is left of chains: above a tag, or below the root.
            is_tag = len(node[0]) == 1 and not isinstance(node[0][0], Tree)
            assert (is_tag and not tags) or (node is collapsed and not root)


def test_unary_chains_by_hand():
    chain = tree("(TOP (S (VP (VB go) (NP (NX (NN home))))))")
    cases = {
        (False, False): "(TOP (S+VP (VB go) (NP+NX (NN home))))",
        (True, False): "(TOP (S+VP (VB go) (NP+NX+NN home)))",
        (False, True): "(TOP+S+VP (VB go) (NP+NX (NN home)))",
    }
    for (tags, root), expected in cases.items():
        assert collapse_unary(chain, tags=tags, root=root) == tree(expected)


def test_a_separator_within_a_label_is_refused():
    with pytest.raises(ArgumentError, match="Got '\\+', which is in the label 'A\\+B'"):
        collapse_unary(tree("(S (A+B (NN a)))"))
    assert collapse_unary(tree("(S (A+B (C (NN a) (NN b))))"), separator="/") == tree(
        "(S (A+B/C (NN a) (NN b)))"
    )
    with pytest.raises(ArgumentError, match="separator"):
        collapse_unary(tree("(S (NN a))"), separator="")


# Binarisation


def test_binarisation_by_hand():
    flat = tree("(S (A a) (B b) (C c) (D d) (E e))")
    cases = {
        ("right", None): "(S (A a) (S|<A> (B b) (S|<A_B> (C c) (S|<A_B_C> (D d) (E e)))))",
        ("right", 1): "(S (A a) (S|<A> (B b) (S|<B> (C c) (S|<C> (D d) (E e)))))",
        ("right", 0): "(S (A a) (S|<> (B b) (S|<> (C c) (S|<> (D d) (E e)))))",
        ("left", None): "(S (S|<E> (S|<D_E> (S|<C_D_E> (A a) (B b)) (C c)) (D d)) (E e))",
        ("left", 2): "(S (S|<E> (S|<D_E> (S|<C_D> (A a) (B b)) (C c)) (D d)) (E e))",
        ("left", 0): "(S (S|<> (S|<> (S|<> (A a) (B b)) (C c)) (D d)) (E e))",
    }
    for (direction, horizontal), expected in cases.items():
        assert markovise(flat, Markovisation(horizontal, 1, direction)) == tree(expected)


def test_vertical_orders_by_hand():
    deep = tree("(TOP (S (NP (NN a)) (VP (VB b) (NP (NN c)))))")
    assert markovise(deep, Markovisation(vertical=2)) == tree(
        "(TOP (S^TOP (NP^S (NN a)) (VP^S (VB b) (NP^VP (NN c)))))"
    )
    assert markovise(deep, Markovisation(vertical=3, tags=True)) == tree(
        "(TOP (S^TOP (NP^S^TOP (NN^NP^S a)) (VP^S^TOP (VB^VP^S b) (NP^VP^S (NN^NP^VP c)))))"
    )


@given(mixed_trees() | trees(), ORDERS)
def test_binarisation_comes_back(original: Tree, orders: Markovisation):
    before = original.copy(deep=True)
    binary = markovise(original, orders)
    assert all(len(node) <= 2 for node in preorder(binary))
    assert binary.leaves() == original.leaves()
    assert restore(binary) == original == before


@given(mixed_trees() | trees(), ORDERS)
def test_coarse_labels_are_those_of_the_lowest_orders(original: Tree, orders: Markovisation):
    fine = markovise(original, orders)
    coarse = markovise(original, Markovisation(0, 1, orders.direction))
    assert [coarse_label(node.label()) for node in preorder(fine)] == [
        node.label() for node in preorder(coarse)
    ]


@given(st.lists(trees(), max_size=4), st.sampled_from(["right", "left"]))
def test_with_all_siblings_remembered_new_labels_lead_back_to_whole_rules(
    originals: list[Tree], direction: str
):
    """Every label that remembers k siblings stands in as many trees as rules that begin so."""
    binary = [markovise(one, replace(LOSSLESS, direction=direction)) for one in originals]
    counts = count_productions(binary)
    made = Counter()
    for (_, right), count in counts.rules.items():
        made.update({label: count for label in set(right) if "|<" in label})
    expected = Counter()
    for (left, right), count in count_productions(originals).rules.items():
        for done in range(1, len(right) - 1):
            known = right[:done] if direction == "right" else right[-done:]
            expected[f"{left}|<{'_'.join(known)}>"] += count
    assert made == expected


@pytest.mark.parametrize("label", ["A^B", "A|<B>", "^"])
def test_labels_that_could_not_come_back_are_refused(label: str):
    for wrong in (Tree(label, ["a"]), Tree("S", [Tree(label, ["a"])])):
        with pytest.raises(ArgumentError, match="labels must not contain"):
            markovise(wrong, LOSSLESS)


def test_wrong_orders_are_refused(unchecked: None):
    with pytest.raises(ArgumentError, match="horizontal must be 0 or more"):
        Markovisation(horizontal=-1)
    with pytest.raises(ArgumentError, match="vertical must be at least 1"):
        Markovisation(vertical=0)
    with pytest.raises(ArgumentError, match="direction must be 'right' or 'left'"):
        Markovisation(direction="up")
    with pytest.raises(ArgumentError, match="the root must be a node of the original tree"):
        restore(tree("(S|<A> (B b) (C c))"))


def test_trees_may_be_deeper_than_the_stack():
    deep = deep_tree(3000)
    text = format_tree(deep)
    (read,) = parse_trees(text)
    binary = markovise(collapse_unary(read), Markovisation(horizontal=1, vertical=2))
    cleaned = clean(expand_unary(restore(binary)), root=None)
    assert cleaned is not None
    assert format_tree(cleaned) == text
    assert sum(count_productions([strip_functions(binary)]).lexicon.values()) == 3001


# Counting


def test_counts_by_hand():
    trees = [
        tree("(S (NP (DT The) (NN cat)) (VP (VBD slept)))"),
        tree("(S (NP (NN cat)) (VP (VBD walked)))"),
    ]
    vocabulary = Vocabulary.from_sentences(map(leaves, trees), threshold=1)
    counts = count_productions(trees, vocabulary)
    assert counts.rules == Counter(
        {("S", ("NP", "VP")): 2, ("NP", ("DT", "NN")): 1, ("NP", ("NN",)): 1, ("VP", ("VBD",)): 2}
    )
    assert counts.lexicon == Counter(
        {("NN", "cat"): 2, ("DT", "UNK-INITC"): 1, ("VBD", "UNK-LC"): 1, ("VBD", "UNK-LC-ed"): 1}
    )
    assert counts.roots == Counter({"S": 2})


def test_counting_refuses_a_word_without_a_tag():
    with pytest.raises(ArgumentError, match="the word 'a' beside others below 'S'"):
        count_productions([tree("(S (NN x) a)")])


# Data


@pytest.mark.exhaustive
def test_every_tree_of_the_penn_sample_comes_back(data_dir: Path, unchecked: None):
    folder = data_dir / "ptb_sample"
    if not folder.is_dir():
        pytest.skip(f"no folder {folder}")
    counts, number = Counter(), 0
    for path in sorted(folder.glob("clean.*.mrg.xz")):
        for original in read_trees(path):
            number += 1
            binary = markovise(collapse_unary(original), Markovisation(horizontal=2, vertical=2))
            assert expand_unary(restore(binary)) == original
            assert clean(original) == original
            counts[original.label()] += len(leaves(original))
    assert (number, counts) == (3914, {"TOP": 94084})


def test_the_counts_of_genia(data_dir: Path):
    path = data_dir / "genia" / "genia.dev.mrg.xz"
    if not path.is_file():
        pytest.skip(f"no file {path}")
    counts = count_productions(read_trees(path))
    assert counts.roots == {"TOP": 1361}
    assert sum(counts.lexicon.values()) == 36181
