"""What `em` and `fit_conditional` refuse, by name and before any work; progress."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from inout import ArgumentError, HiddenMarkovModel, em, fit_conditional
from inout.learning import Additive, Dirichlet, Progress, TrainingError
from tests.processes import on_terminal, python

MODEL = HiddenMarkovModel.random(2, 3, generator=torch.Generator().manual_seed(0))
CORPUS = [[0, 1, 2], [1]]


class Untouched(HiddenMarkovModel):
    """A model that must not be asked to do anything."""

    def likelihood(self, corpus: Any) -> Any:
        raise AssertionError("work was done before the arguments were checked")


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("frequencies", {"frequencies": [1.0]}),
        ("frequencies", {"frequencies": [1.0, -1.0]}),
        ("frequencies", {"frequencies": [1.0, math.nan]}),
        ("frequencies", {"frequencies": [0.0, 0.0]}),
        ("frequencies", {"frequencies": ["a", "b"]}),
        ("restarts", {"restarts": -1}),
        ("restarts", {"restarts": 1.5}),
        ("generator", {"restarts": 1, "generator": 7}),
        ("generator", {"generator": 7}),
        ("starts", {"starts": 3}),
        (r"starts\[1\]", {"starts": [MODEL, [0.0]]}),
        (r"starts\[0\]", {"starts": [[math.nan] * 12]}),
        (r"starts\[0\]", {"starts": [[-math.inf, *[0.0] * 11]], "prior": Additive(1.0)}),
        ("prior", {"prior": 0.5}),
        ("amount", {"prior": Additive(-0.5)}),
        ("alpha", {"prior": Dirichlet(0.0)}),
        ("alpha", {"prior": Dirichlet([1.0, 2.0])}),
        ("alpha", {"prior": Dirichlet(math.inf)}),
        ("tolerance", {"tolerance": -1e-3}),
        ("tolerance", {"tolerance": math.nan}),
        ("tolerance", {"tolerance": "small"}),
        ("max_iterations", {"max_iterations": -1}),
        ("max_iterations", {"max_iterations": True}),
        ("resume", {"resume": True}),
        ("progress", {"progress": "yes"}),
    ],
)
def test_bad_arguments_are_refused_by_name(name: str, arguments: dict[str, Any]):
    model = Untouched(MODEL.initial, MODEL.transition, MODEL.emission)
    with pytest.raises(ArgumentError, match=name):
        em(model, CORPUS, **arguments)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("corpus", ["abc", 3, None, [], {}])
def test_bad_corpora(corpus: Any):
    with pytest.raises(ArgumentError, match="corpus"):
        em(MODEL, corpus)


@pytest.mark.parametrize("corpus", [[[0, 3]], [[0, -1]], [["a"]], [[0.5]], [[[0]]], [0]])
def test_bad_sequences(corpus: Any):
    with pytest.raises(ArgumentError, match="corpus"):
        em(MODEL, corpus)


@pytest.mark.usefixtures("unchecked")
def test_what_is_no_model_is_refused():
    with pytest.raises(ArgumentError, match=r"model must be a GenerativeModel\. Got int"):
        em(3, CORPUS)


def test_a_corpus_without_any_analysis():
    weights = MODEL.log_weights.clone()
    weights[8] = weights[11] = -math.inf  # nobody emits 2
    with pytest.raises(TrainingError, match="no sentence of the corpus has an analysis"):
        em(MODEL.with_log_weights(weights), [[2], [0, 2]])


def test_sentences_that_do_not_count_are_no_training_data():
    with_zero = em(MODEL, [*CORPUS, [2, 2]], frequencies=[1.0, 1.0, 0.0], max_iterations=3)
    without = em(MODEL, CORPUS, max_iterations=3)
    assert torch.allclose(with_zero.model.log_weights, without.model.log_weights, atol=1e-12)


def test_weights_that_are_no_distributions_are_normalised_first():
    scaled = em(MODEL.with_log_weights(MODEL.log_weights + 2.5), CORPUS, max_iterations=2)
    plain = em(MODEL, CORPUS, max_iterations=2)
    assert scaled.log_likelihoods == pytest.approx(plain.log_likelihoods, rel=1e-12)


def test_a_corpus_may_be_any_iterable():
    assert em(MODEL, (x for x in CORPUS)).log_likelihoods == em(MODEL, CORPUS).log_likelihoods
    tensors = [torch.tensor(x) for x in CORPUS]
    assert em(MODEL, tensors).log_likelihoods == em(MODEL, CORPUS).log_likelihoods


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("observed", {"observed": [math.nan, 0.0]}),
        ("observed", {"observed": 3.0}),
        ("observed", {"observed": []}),
        ("observed", {"observed": "ab"}),
        ("initial", {"initial": [0.0]}),
        ("initial", {"initial": [-math.inf, 0.0]}),
        ("frequencies", {"frequencies": [-1.0]}),
        ("l2", {"l2": -1.0}),
        ("method", {"method": "newton"}),
        ("learning_rate", {"learning_rate": 0.0}),
        ("tolerance", {"tolerance": math.inf}),
        ("max_iterations", {"max_iterations": 1.0}),
        ("resume", {"resume": True}),
        ("progress", {"progress": 3}),
        ("log_partition", {"log_partition": 3}),
    ],
)
def test_bad_arguments_of_conditional_training(name: str, arguments: dict[str, Any]):
    def untouched(weights: torch.Tensor) -> torch.Tensor:
        raise AssertionError("work was done before the arguments were checked")

    given = {"log_partition": untouched, "observed": [1.0, 0.0]} | arguments
    with pytest.raises(ArgumentError, match=name):
        fit_conditional(**given)


def told(function: Callable[..., Any], *arguments: Any, **options: Any) -> list[Progress]:
    heard: list[Progress] = []
    function(*arguments, progress=heard.append, **options)
    return heard


def test_a_callback_hears_of_every_iteration():
    generator = torch.Generator().manual_seed(3)
    corpus = MODEL.sample([5] * 10, generator=generator)
    result = em(MODEL, corpus, tolerance=1e-4)
    heard = told(
        em, MODEL, corpus, tolerance=1e-4, restarts=1, generator=generator, max_iterations=500
    )
    first = [x for x in heard if x.run == 0]
    assert [x.iteration for x in first] == list(range(result.iterations + 1))
    assert tuple(x.log_likelihood for x in first) == result.log_likelihoods
    assert first[-1].perplexity == pytest.approx(math.exp(-result.log_likelihood / 50))
    assert (first[-1].iterations_left, first[0].runs) == (0, 2)
    assert all(x.seconds_left is not None and x.seconds_left >= 0 for x in heard)
    assert heard[-1].seconds_left == 0


SHOWN = """
import torch, inout
g = torch.Generator().manual_seed(0)
model = inout.HiddenMarkovModel.random(3, 4, generator=g)
corpus = model.sample([6] * 20, generator=g)
inout.em(model, corpus, max_iterations=25, tolerance=0.0, progress=True)
print("done")
"""


@pytest.mark.exhaustive
def test_nothing_is_shown_without_a_terminal():
    answer = python("-c", SHOWN)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "done\n", "")


@pytest.mark.exhaustive
def test_a_bar_is_shown_on_a_terminal():
    shown = on_terminal("-c", SHOWN, columns=120, streams=["stderr"])
    for text in ("EM", "log-likelihood -", "perplexity ", " left"):
        assert text in shown


def test_the_folder_of_a_checkpoint_must_exist(tmp_path: Path):
    from inout import FileError

    with pytest.raises(FileError, match="there is no directory"):
        em(MODEL, CORPUS, checkpoint=tmp_path / "nowhere" / "file")
