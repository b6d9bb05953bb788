"""`ContextTagger` behaves as an estimator of scikit-learn does, and as the model it holds."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from inout._core.errors import ArgumentError
from inout.contexts.history_features import HistoryFeature
from inout.contexts.model import ContextModel
from inout.estimators import ContextTagger
from tests.processes import python


def example(count: int = 40, seed: int = 0):
    """Sequences of noisy letters of the words abab, bcbc and caca."""
    random = np.random.default_rng(seed)
    sequences, labels = [], []
    for word in random.choice(["abab", "bcbc", "caca"], count):
        seen = [letter if random.random() < 0.8 else "?" for letter in word]
        sequences.append([[f"seen={letter}"] for letter in seen])
        labels.append(list(word))
    return sequences, labels


X, Y = example()
NEW, WANTED = example(20, seed=1)


@pytest.fixture(scope="module")
def fitted():
    return ContextTagger(order=3, epochs=3).fit(X, Y)


def test_answers_belong_together(fitted):
    assert fitted.classes_.tolist() == ["a", "b", "c"]
    predicted = fitted.predict(NEW)
    probabilities = fitted.predict_proba(NEW)
    sure = fitted.confidence(NEW)
    assert [len(labels) for labels in predicted] == [len(sequence) for sequence in NEW]
    assert sure.shape == (20,)
    for labels, rows, confidence in zip(predicted, probabilities, sure, strict=True):
        assert rows.shape == (4, 3)
        assert rows.sum(1) == pytest.approx(np.ones(4))
        chosen = [rows[i, fitted.classes_.tolist().index(label)] for i, label in enumerate(labels)]
        # All right at once is no likelier than any one of them.
        assert 0 < confidence <= min(chosen) + 1e-9


def test_confidence_is_the_probability_of_the_labels(fitted):
    log_probabilities = fitted.model_.log_likelihoods(NEW, fitted.predict(NEW))
    assert np.log(fitted.confidence(NEW)) == pytest.approx(log_probabilities)


def test_scores_count_sequences_and_labels(fitted):
    predicted = fitted.predict(NEW)
    right = [a == b for a, b in zip(predicted, WANTED, strict=True)]
    hits = [
        p == w for a, b in zip(predicted, WANTED, strict=True) for p, w in zip(a, b, strict=True)
    ]
    assert fitted.score(NEW, WANTED) == np.mean(right)
    assert fitted.label_score(NEW, WANTED) == np.mean(hits)
    assert fitted.score(NEW, WANTED) > 0.6


def test_the_constructor_only_stores():
    tagger = ContextTagger(order=-3, step=-1.0)
    assert tagger.get_params()["order"] == -3
    assert [name for name in vars(tagger) if name.endswith("_")] == []
    with pytest.raises(ArgumentError, match="step must be"):
        ContextTagger(step=-1.0).fit(X, Y)
    with pytest.raises(ArgumentError, match="order must be an integer of at least 1"):
        ContextTagger(order=0).fit(X, Y)


def test_parameters_and_clones(fitted):
    copied = clone(fitted)
    assert copied.get_params() == fitted.get_params()
    assert not hasattr(copied, "model_")
    assert copied.set_params(order=2, size=5) is copied
    assert (copied.order, copied.size, fitted.order) == (2, 5, 3)
    assert "order=2" in repr(copied)
    with pytest.raises(ValueError, match="Invalid parameter"):
        copied.set_params(depth=2)


def test_functions_of_histories(tmp_path):
    blank, cycles = [[["bias"]] * 6] * 20, [[0, 1, 2, 0, 1, 2]] * 20
    before = HistoryFeature("before", 1, lambda history: history[0])
    tagger = clone(ContextTagger(order=1, history_features=[before]))
    # Without it nothing tells one position from another.
    assert tagger.fit(blank, cycles).predict(blank[:1]) == cycles[:1]
    assert ContextTagger(order=1).fit(blank, cycles).predict(blank[:1]) != cycles[:1]
    tagger.model_.save(tmp_path / "tagger.ctx")
    loaded = ContextModel.load(tmp_path / "tagger.ctx", history_features=[before])
    assert loaded.tag(blank[:1])[0].labels == ["0", "1", "2", "0", "1", "2"]


def test_unfitted_taggers_say_so():
    for method in ("predict", "predict_proba", "confidence"):
        with pytest.raises(NotFittedError):
            getattr(ContextTagger(), method)(NEW)


def test_training_does_not_change_what_it_is_given():
    sequences, labels = example(5)
    tagger = ContextTagger(epochs=1)
    before = tagger.get_params()
    tagger.fit(sequences, labels)
    assert (sequences, labels) == example(5)
    assert tagger.get_params() == before


def test_seeds():
    def weights(**options):
        return ContextTagger(order=2, epochs=2, **options).fit(X, Y).model_.emission

    assert np.array_equal(weights(), weights())
    assert np.array_equal(weights(random_state=3), weights(random_state=3))
    assert not np.array_equal(weights(random_state=3), weights(random_state=4))
    again = weights(random_state=np.random.RandomState(3))
    assert np.array_equal(weights(random_state=3), again)


def test_fitting_again_starts_afresh(fitted):
    tagger = ContextTagger(order=3, epochs=3).fit(NEW, WANTED).fit(X, Y)
    assert np.array_equal(tagger.model_.emission, fitted.model_.emission)


def test_grid_search():
    search = GridSearchCV(
        ContextTagger(epochs=2), {"order": [1, 3]}, cv=KFold(3), error_score="raise"
    )
    search.fit(X, Y)
    # Without n-grams nothing is known of the letters that are not seen.
    assert search.best_params_ == {"order": 3}
    assert search.score(NEW, WANTED) == search.best_estimator_.score(NEW, WANTED)


def test_cross_validation_and_pipelines():
    scores = cross_val_score(ContextTagger(order=2, epochs=1), X, Y, cv=2, error_score="raise")
    assert scores.shape == (2,)
    marked = FunctionTransformer(lambda some: [[[*p, "bias"] for p in one] for one in some])
    pipeline = make_pipeline(marked, ContextTagger(order=3, epochs=2)).fit(X, Y)
    assert "bias" in pipeline[-1].model_.features
    assert len(pipeline.predict_proba(NEW)) == 20


def test_arrays_and_mappings_are_the_same():
    names = ["seen=a", "seen=b", "seen=c"]
    arrays = [
        np.array([[float(name in position) for name in names] for position in sequence])
        for sequence in X
    ]
    mappings = [
        [{str(k): 1.0 for k, name in enumerate(names) if name in position} for position in sequence]
        for sequence in X
    ]
    first = ContextTagger(order=2, epochs=2).fit(arrays, Y)
    second = ContextTagger(order=2, epochs=2).fit(mappings, Y)
    assert np.array_equal(first.confidence(arrays), second.confidence(mappings))


def test_labels_keep_their_type():
    numbers = [[10 * (ord(letter) - ord("a")) for letter in labels] for labels in Y]
    tagger = ContextTagger(order=2, epochs=1).fit(X, numbers)
    assert tagger.classes_.dtype.kind == "i"
    assert {label for labels in tagger.predict(NEW) for label in labels} <= {0, 10, 20}
    assert tagger.score(X, [np.array(labels) for labels in numbers]) > 0.2
    same = ContextTagger(order=1, epochs=1).fit([[["x"], ["y"]]], [[1, 1.0]])
    assert same.classes_.tolist() == [1]
    mixed = ContextTagger(order=1, epochs=1).fit([[["x"], ["y"]]], [[1, ("a", "b")]])
    assert mixed.predict([[["x"], ["y"]]]) == [[1, ("a", "b")]]


def test_the_model_is_that_of_the_command(fitted, tmp_path):
    fitted.model_.save(tmp_path / "tagger.ctx")
    found = ContextModel.load(tmp_path / "tagger.ctx").tag(NEW)
    assert [tagging.labels for tagging in found] == fitted.predict(NEW)


def test_parameters_of_numpy_are_saved(tmp_path):
    tagger = ContextTagger(epochs=1)  # as a grid search sets them
    tagger.set_params(order=np.int64(2), size=np.int64(3), step=np.float32(0.5))
    tagger.fit(X, Y).model_.save(tmp_path / "tagger.ctx")
    model = ContextModel.load(tmp_path / "tagger.ctx")
    assert (model.settings.order, model.settings.size, model.training["step"]) == (2, 3, 0.5)


@pytest.mark.parametrize(
    ("sequences", "labels", "message"),
    [
        ([], [], "must not be empty"),
        ([[["a"]]], [], "tags must be one list"),
        ([[["a"]]], [["x", "y"]], "1 positions and 2 labels"),
        ([[]], [[]], "must have a position"),
        ([[["a"], ["b"]]], [[1, "1"]], "differ as strings too. Got 1 and '1'"),
        ([[{"a": float("nan")}]], [["x"]], "must be finite"),
    ],
)
def test_bad_training_data_is_refused(sequences, labels, message):
    with pytest.raises(ArgumentError, match=message):
        ContextTagger().fit(sequences, labels)


def test_bad_test_data_is_refused(fitted):
    with pytest.raises(ArgumentError, match="Got 20 and 19"):
        fitted.score(NEW, WANTED[1:])
    with pytest.raises(ArgumentError, match="number 0 has 4 positions and 3 labels"):
        fitted.score(NEW[:1], [WANTED[0][1:]])
    with pytest.raises(ArgumentError, match="at least one"):
        fitted.score([], [])
    with pytest.raises(ArgumentError, match="must have a position"):
        fitted.predict([[]])


def test_the_package_does_without_scikit_learn():
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import inout\n"
        "try:\n    import inout.estimators\n"
        "except ImportError as error:\n    print(error)\n"
    )
    answer = python("-c", code, check=True)
    assert 'pip install "inout[estimators]"' in answer.stdout
