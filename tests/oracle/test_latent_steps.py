"""Sentences whose unary chains no tree had: the last resort of latent models."""

from __future__ import annotations

import pytest
from nltk import Tree

from inout import Grammar, Markovisation, Parser, fit_latent_grammar
from inout.grammars.treebank import format_tree
from inout.latent.decoding.parser import LatentParser
from tests.support import assert_close

TREES = [
    Tree.fromstring(text)
    for text in [
        "(TOP (S (NP (PRP she)) (VP (VBD saw) (NP (DT the) (NN cat)))))",
        "(TOP (INTJ (UH yes)))",
        "(TOP (NP (NN cat)))",
        "(TOP (S (VP (VB go))))",
        "(TOP (S (NP (DT the) (NN dog)) (VP (VBD ran))))",
        "(TOP (S (NP (NNP Kim)) (VP (VBD saw) (NP (PRP her)))))",
    ]
    for _ in range(3)
]


@pytest.fixture(scope="module", params=["em", "spectral"])
def parser(request: pytest.FixtureRequest) -> LatentParser:
    return LatentParser(fit_latent_grammar(TREES, latent=2, method=request.param))


@pytest.mark.parametrize(
    ("words", "tree", "source"),
    [
        ("cat", "(TOP (NP (NN cat)))", "latent"),
        ("saw", "(TOP (S (VP (VBD saw))))", "steps"),
        ("dog", "(TOP (NP (NN dog)))", "steps"),
        ("her", "(TOP (NP (PRP her)))", "steps"),
        ("Kim ran", "(TOP (S (NP (NNP Kim)) (VP (VBD ran))))", "steps"),
        ("Kim saw her", "(TOP (S (NP (NNP Kim)) (VP (VBD saw) (NP (PRP her)))))", "latent"),
        ("go the cat", None, "none"),
        ("the", None, "none"),
        ("", None, "none"),
    ],
)
def test_what_a_plain_grammar_parses_has_a_tree(parser, words, tree, source):
    found = parser.parse(words.split())
    assert found.source == source
    assert tree == (None if found.tree is None else format_tree(found.tree))


def test_the_steps_are_the_rules_of_the_trees(parser):
    """Relative frequencies of the treebank itself, where labels know no parents."""
    plain = Parser(Grammar.from_treebank(TREES, Markovisation(vertical=1), unknown_threshold=0))
    for words in ("saw", "dog", "yes", "she saw the cat", "Kim ran", "the dog saw her"):
        assert_close(
            parser.coarse.by_steps.log_partition(words.split()), plain.log_partition(words.split())
        )
