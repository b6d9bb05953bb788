"""PARSEVAL against cases worked out by hand and against a slow twin that follows evalb's README."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.tree import Tree

from inout._core.errors import ArgumentError
from inout.grammars.treebank import Parseval, Scores, SentenceScore, score, score_sentence
from tests.oracle.random_trees import trees

EVALB = Parseval(punctuation_by="each", count_failures=False)


def tree(text: str) -> Tree:
    return Tree.fromstring(text)


def counted(gold: str, parse: str, options: Parseval | None = None) -> tuple[int, ...]:
    """Gold and parse brackets, matched, matched without labels, crossing; words, right tags."""
    one = score_sentence(tree(gold), tree(parse), options)
    assert one.status == "parsed", one.message
    return (
        *(one.gold, one.found, one.matched, one.matched_unlabelled, one.crossing),
        *(one.words, one.correct_tags),
    )


def test_a_misattached_phrase():
    # Gold: S[0,6] NP[0,1] VP[1,6] NP[2,4] PP[4,6] NP[5,6].
    # Parse: S[0,6] NP[0,1] VP[1,6] NP[2,6] NP[2,4] PP[4,6] NP[5,6]: one bracket too many.
    gold = (
        "(S (NP (PRP I)) (VP (VBD saw) (NP (DT the) (NN man)) (PP (IN with) (NP (NNS glasses)))))"
    )
    parse = (
        "(S (NP (PRP I)) (VP (VBD saw) (NP (NP (DT the) (NN man)) (PP (IN with) "
        "(NP (NNS glasses))))))"
    )
    assert counted(gold, parse) == (6, 7, 6, 6, 0, 6, 6)
    # The other way round nothing crosses either, and one gold bracket is missing.
    assert counted(parse, gold) == (7, 6, 6, 6, 0, 6, 6)
    scores = score([tree(gold)], [tree(parse)])
    assert (scores.precision, scores.recall, scores.f1) == (6 / 7, 1.0, 12 / 13)
    assert scores.exact_match == 0


def test_crossing_brackets_are_those_of_the_parse():
    # Gold: S[0,4] A[0,2] B[2,4]. Parse: S[0,4] C[1,4] D[1,3]: C crosses A, D crosses A and B.
    gold = "(S (A (X a) (X b)) (B (X c) (X d)))"
    parse = "(S (X a) (C (D (X b) (X c)) (X d)))"
    assert counted(gold, parse) == (3, 3, 1, 1, 2, 4, 4)
    # Turned round: A[0,2] crosses C and D, B[2,4] crosses D only; each counts once.
    assert counted(parse, gold) == (3, 3, 1, 1, 2, 4, 4)
    # A bracket twice in the parse crosses twice.
    twice = "(S (X a) (X b) (X c) (X d))", "(S (X a) (C (C (X b) (X c))) (X d))"
    assert counted(gold, twice[1])[4] == 2
    assert counted(twice[0], twice[1])[4] == 0


def test_brackets_of_the_same_span_match_as_often_as_in_both():
    # evalb's README, [7] 5: n in the gold tree, m in the parse.
    one, two = "(S (NP (NN a)) (VB b))", "(S (NP (NP (NN a))) (VB b))"
    assert counted(one, two)[:3] == (2, 3, 2)  # m > n: precision n/m within the span
    assert counted(two, one)[:3] == (3, 2, 2)  # n > m: recall m/n
    assert counted(two, two)[:3] == (3, 3, 3)


def test_unary_chains_in_another_order_match():
    # S[0,2] over VP[0,2] and VP over S hold the same brackets: evalb sees no order in a span.
    gold, parse = "(TOP (S (VP (VB a) (NN b))))", "(TOP (VP (S (VB a) (NN b))))"
    assert counted(gold, parse) == (2, 2, 2, 2, 0, 2, 2)
    # Labels do not matter without labels, numbers do.
    assert counted(gold, "(TOP (X (Y (Z (VB a) (NN b)))))")[:4] == (2, 3, 0, 2)


def test_punctuation_goes_before_positions_are_counted():
    # Gold: S[0,2], NP[0,1], VP[1,2]; the comma within the NP does not tell NP[0,1] from NP[0,2].
    gold = "(TOP (S (NP (NN a)) (, ,) (VP (VB b)) (. .)))"
    parse = "(TOP (S (NP (NN a) (, ,)) (VP (VB b) (. .))))"
    assert counted(gold, parse) == (3, 3, 3, 3, 0, 2, 2)
    everything = Parseval(punctuation=())
    # Now gold is S[0,4] NP[0,1] VP[2,3] and the parse is S[0,4] NP[0,2] VP[2,4].
    assert counted(gold, parse, everything) == (3, 3, 1, 1, 0, 4, 4)
    # The length of the sentence counts it anyway.
    assert score_sentence(tree(gold), tree(parse)).length == 4


def test_brackets_of_nothing_but_punctuation_do_not_count():
    gold = "(TOP (S (NP (NN a)) (PRN (, ,) (X (: --))) (VP (VB b))))"
    parse = "(TOP (S (NP (NN a)) (, ,) (: --) (VP (VB b))))"
    assert counted(gold, parse) == (3, 3, 3, 3, 0, 2, 2)


def test_punctuation_that_makes_brackets_cross_or_not():
    # With the comma at 1: gold A[0,2], parse B[1,3] cross. Without it: A[0,1], B[1,2] do not.
    gold = "(S (A (X a) (, ,)) (X b))"
    parse = "(S (X a) (B (, ,) (X b)))"
    assert counted(gold, parse)[4] == 0
    assert counted(gold, parse, Parseval(punctuation=()))[4] == 1


def test_traces_and_function_tags():
    # The README's example: SBAR over nothing but traces vanishes.
    gold = "(TOP (S (NP-SBJ-1 (PRP he)) (VP (VBD reported) (SBAR (-NONE- 0) (S (-NONE- *T*-1))))))"
    parse = "(TOP (S (NP (PRP he)) (VP=2 (VBD reported))))"
    assert counted(gold, parse) == (3, 3, 3, 3, 0, 2, 2)
    assert score_sentence(tree(gold), tree(parse)).length == 2
    assert counted(gold, parse, Parseval(functions=True))[:3] == (3, 3, 1)


def test_equal_labels_and_roots():
    gold = "(TOP (S (VP (VB give) (PRT (RP up)))))"
    parse = "(ROOT (S (VP (VB give) (ADVP (RB up)))))"
    assert counted(gold, parse) == (3, 3, 3, 3, 0, 2, 1)
    assert counted(gold, parse, Parseval(equal={}))[:3] == (3, 3, 2)
    assert counted(gold, parse, Parseval(roots=()))[:4] == (4, 4, 3, 4)


def test_tags_of_punctuation_do_not_count_and_those_of_words_do():
    gold = "(TOP (S (NN a) (VB b) (. .)))"
    assert counted(gold, "(TOP (S (NN a) (NN b) (. .)))")[5:] == (2, 1)


def test_a_word_that_the_parser_took_for_punctuation():
    gold, parse = "(TOP (S (NP (NN a)) (VP (VB -))))", "(TOP (S (NP (NN a)) (VP (: -))))"
    assert counted(gold, parse) == (3, 3, 3, 3, 0, 2, 1)
    assert counted(parse, gold) == (2, 2, 2, 2, 0, 1, 1)
    lost = score_sentence(tree(gold), tree(parse), EVALB)
    assert (lost.status, lost.exact) == ("error", False)
    assert lost.message == "the parse has 1 words without punctuation, the gold tree 2"


def test_failures_and_errors_are_counted():
    gold = [tree("(TOP (S (NN a) (VP (VB b))))")] * 3
    other = tree("(TOP (S (NN a) (VP (VB c))))")
    scores = score(gold, [gold[0], None, other])
    assert (scores.num_sentences, scores.num_failed, scores.num_errors) == (3, 1, 1)
    assert scores.sentences[2].message == ("the parse has the word 'c' where the gold tree has 'b'")
    assert (scores.precision, scores.recall, scores.f1) == (1.0, 0.5, 2 / 3)
    assert (scores.exact_match, scores.tag_accuracy) == (0.5, 0.5)
    assert (scores.no_crossing, scores.average_crossing) == (1.0, 0.0)
    skipped = score(gold, [gold[0], None, other], EVALB)
    assert (skipped.recall, skipped.exact_match, skipped.tag_accuracy) == (1.0, 1.0, 1.0)
    shorter = score_sentence(gold[0], tree("(TOP (NN a))"))
    assert shorter.message == "the parse has 1 words, the gold tree 2"


def test_different_numbers_of_trees_are_refused():
    one = tree("(S (NN a))")
    with pytest.raises(ArgumentError, match="Got only 1 parses instead"):
        score([one, one], [one])
    with pytest.raises(ArgumentError, match="Got only 0 gold trees instead"):
        score([], [None])


def test_sums_before_ratios_and_tables():
    short = SentenceScore(5, 4, 4, 4, 4, 4, 0, 4)
    middle = SentenceScore(12, 10, 10, 8, 6, 7, 2, 9)
    long = SentenceScore(41, 36, 30, 20, 10, 15, 3, 30)
    scores = Scores((short, middle, long, SentenceScore(12, 10, 6, status="failed")))
    assert scores.precision == 20 / 32
    assert scores.recall == 20 / 50
    assert scores.f1 == 40 / 82
    assert scores.unlabelled_f1 == 52 / 82
    assert scores.average_crossing == 5 / 3
    assert (scores.no_crossing, scores.two_or_less_crossing) == (1 / 3, 2 / 3)
    assert scores.tag_accuracy == 43 / 60
    assert scores.exact_match == 1 / 4
    assert scores.up_to(40).sentences == (short, middle, scores.sentences[3])
    by_length = scores.by_length(10)
    assert list(by_length) == [(1, 10), (11, 20), (41, 50)]
    assert by_length[11, 20].recall == 6 / 16
    # Lengths 10 and 11 stand on two sides of a border.
    borders = Scores((SentenceScore(10, 1, 1), SentenceScore(11, 1, 1))).by_length()
    assert [group.num_sentences for group in borders.values()] == [1, 1]
    lines = scores.table().splitlines()
    assert [line.split()[0] for line in lines[:6]] == [
        "length",
        "1-10",
        "11-20",
        "41-50",
        "<=",
        "all",
    ]
    assert lines[5].split() == (
        ["all", "4", "1", "0", "62.50", "40.00", "48.78", "63.41", "25.00", "71.67"]
    )
    assert lines[-1] == (
        "crossing brackets a sentence: 1.67; none in 33.33 %, at most two in 66.67 %"
    )
    assert scores.to_dict()["f1"] == scores.f1


def test_nothing_counted_is_zero_as_in_evalb():
    empty = score([], [])
    assert set(empty.to_dict().values()) == {0}
    # A word of its own has no brackets; two trees without brackets agree.
    assert score([tree("(NN a)")], [tree("(NN a)")]).exact_match == 1


def naive(gold: Tree, parse: Tree) -> tuple[int, ...]:
    """The numbers of `counted` for COLLINS.prm by marking brackets off, pair by pair."""
    deleted = {",", ":", "``", "''", ".", "-NONE-"}
    sides = []
    for one in (gold, parse):
        tags, brackets = [], []

        def visit(node: Tree, tags: list = tags, brackets: list = brackets) -> None:
            if isinstance(node[0], str):
                if node.label() not in deleted:
                    tags.append(node.label())
                return
            start = len(tags)
            for child in node:
                visit(child)
            label = "ADVP" if node.label() == "PRT" else node.label()
            if start < len(tags) and label not in {"TOP", "ROOT"}:
                brackets.append((label, start, len(tags)))

        visit(one)
        sides.append((tags, brackets))
    (tags, wanted), (other_tags, found) = sides
    matches = []
    for labelled in (True, False):
        left = list(found)
        for bracket in wanted:
            for other in left:
                if bracket[1:] == other[1:] and (not labelled or bracket[0] == other[0]):
                    left.remove(other)
                    break
        matches.append(len(found) - len(left))
    crossing = 0
    for _, start, end in found:
        for _, first, last in wanted:
            inside = set(range(start, end)) & set(range(first, last))
            apart = set(range(start, end)) - inside and set(range(first, last)) - inside
            if inside and apart:
                crossing += 1
                break
    right = sum(a == b for a, b in zip(tags, other_tags, strict=True))
    return len(wanted), len(found), *matches, crossing, len(tags), right


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Tree, Tree]:
    """A gold tree and another over the same words, whose punctuation is tagged the same."""
    gold = draw(trees())
    tagged = [list(pair) for pair in gold.pos()]
    parts = [
        Tree(draw(st.sampled_from(["NN", "VB"])) if tag in ("NN", "VB") else tag, [word])
        for word, tag in tagged
    ]
    # Neighbours are joined at random until one tree is left: any shape over these words.
    while len(parts) > 1 or draw(st.booleans()):
        start = draw(st.integers(0, len(parts) - 1))
        end = draw(st.integers(start + 1, len(parts)))
        label = draw(st.sampled_from(["S", "NP", "ADVP", "PRT"]))
        parts[start:end] = [Tree(label, parts[start:end])]
    return gold, parts[0]


@given(pairs())
def test_against_marking_off_pair_by_pair(pair: tuple[Tree, Tree]):
    gold, parse = pair
    for options in (Parseval(), EVALB):
        one = score_sentence(gold, parse, options)
        if not any(tag not in {",", ":", "``", "."} for _, tag in gold.pos()):
            assert one.words == one.gold == one.found == 0
            continue
        assert naive(gold, parse) == (
            *(one.gold, one.found, one.matched, one.matched_unlabelled, one.crossing),
            *(one.words, one.correct_tags),
        )
