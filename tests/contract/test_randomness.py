"""All that draws at random works without a generator, and is then torch's to seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from nltk.tree import Tree

import inout
from inout.contexts import ContextChain
from inout.grammars.sampling import sample_sentences, sample_trees
from inout.latent import SkeletalTrees, cluster_nodes, random_model, split
from inout.learning import HiddenMarkovModel
from tests.contract.event_enumeration import seeded

GRAMMAR = inout.Grammar.from_text("S -> S S [0.4] | 'a' [0.6]")
WORDS = ["a"] * 12
TREES = SkeletalTrees.of([Tree.fromstring("(S (S a) (S (S a) (S b)))"), Tree.fromstring("(S a)")])
LATENT = random_model(TREES, 3, seeded())
HIDDEN = HiddenMarkovModel.random(3, 5, generator=seeded())
CORPUS = HIDDEN.sample([6] * 4, generator=seeded(1))


def forest() -> inout.Forest:
    found = inout.LinearChain(torch.zeros(30, 2), torch.zeros(2, 2)).forest()
    assert isinstance(found, inout.Forest)
    return found


WAYS: dict[str, Callable[..., Any]] = {
    "chain": lambda **g: inout.LinearChain(torch.zeros(60, 2), torch.zeros(2, 2)).sample(**g),
    "contexts": lambda **g: ContextChain(
        torch.zeros(60, 1, 2), torch.zeros(60, 1, 2, dtype=torch.long)
    ).sample(**g),
    "forest": lambda **g: [tree.items for tree in forest().sample(3, **g)],
    "grammar trees": lambda **g: sample_trees(GRAMMAR, 30, **g),
    "grammar sentences": lambda **g: sample_sentences(GRAMMAR, 30, **g),
    "parser": lambda **g: [p.tree for p in inout.Parser(GRAMMAR).sample(WORDS, 5, **g)],
    "latent model": lambda **g: LATENT.sample(50, **g).rules,
    "random latent model": lambda **g: random_model(TREES, 3, **g).parameters,
    "split": lambda **g: split(LATENT, **g).parameters,
    "clusters": lambda **g: cluster_nodes(TREES, np.arange(12.0).reshape(6, 2), 3, **g),
    "hidden Markov model": lambda **g: HiddenMarkovModel.random(3, 5, **g).log_weights,
    "its sequences": lambda **g: torch.stack(HIDDEN.sample([20, 20], **g)),
}


@pytest.fixture(autouse=True)
def kept_state() -> Iterator[None]:
    state = torch.get_rng_state()
    yield
    torch.set_rng_state(state)


def equal(x: Any, y: Any) -> bool:
    return bool(np.array_equal(x, y)) if isinstance(x, np.ndarray | torch.Tensor) else x == y


@pytest.mark.parametrize("name", WAYS)
def test_without_a_generator(name, unchecked):
    draw = WAYS[name]
    wanted = draw(generator=seeded(5))
    torch.set_rng_state(seeded(5).get_state())
    assert equal(draw(), wanted)
    assert equal(draw(generator=seeded(5)), wanted)
    others = [draw() for _ in range(5)]
    assert not all(equal(other, wanted) for other in others)
    with pytest.raises(inout.ArgumentError, match=r"^generator must be a torch\.Generator or None"):
        draw(generator=5)


def test_em_restarts_without_a_generator(tmp_path):
    found = []
    for resume in (False, False, True):
        torch.set_rng_state(seeded(6 + resume).get_state())
        path = tmp_path / "state"
        path.unlink(missing_ok=True) if not resume else None
        options = {"restarts": 2, "max_iterations": 3, "checkpoint": path, "resume": resume}
        found.append(inout.em(HIDDEN, CORPUS, **options).model.log_weights)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
