"""EM on programs against Baum-Welch, Ristad & Yianilos, grammars, and sums over derivations."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from itertools import product

import numpy as np
import pytest
import torch

from inout import (
    ArgumentError,
    Facts,
    Grammar,
    GroundingError,
    HiddenMarkovModel,
    Program,
    ProgramModel,
    em,
    programs,
)
from inout.learning import Additive, log_softmax
from tests.oracle.derivations import Derivation, Fact, cnf_trees, weigh
from tests.oracle.em_models import baum_welch_step
from tests.oracle.program_models import Group, enumerated_step, ristad_yianilos_step
from tests.oracle.test_programs_adjoining import random_tree_grammar
from tests.oracle.test_programs_sequences import edits, hmm_paths
from tests.oracle.test_programs_trees import bilingual_trees
from tests.seeds import seeds
from tests.support import assert_close

SEEDS = seeds(3)
SEQUENCES = [[0, 1, 2, 1], [2], [1, 1, 0, 2, 2, 0, 1], [0, 0], [2, 1, 0, 1, 2]]
FREQUENCIES = [1.0, 2.5, 3.0, 0.25, 2.0]
SENTENCES = [programs.sentence([str(x) for x in sequence]) for sequence in SEQUENCES]


def logs(weights: dict[tuple, float]) -> dict[tuple, float]:
    return {row: math.log(p) if p else -math.inf for row, p in weights.items()}


def check_steps(
    model: ProgramModel,
    corpus: list[dict],
    derivations: list[list[Derivation]],
    group: Group,
    frequencies: list[float] | None = None,
    pseudo_count: float = 0.0,
) -> ProgramModel:
    """Three steps of `em` against three by enumeration, from normalised weights."""
    frequencies = frequencies or [1.0] * len(corpus)
    prior = Additive(pseudo_count) if pseudo_count else None
    result = em(
        model, corpus, frequencies=frequencies, max_iterations=3, tolerance=0.0, prior=prior
    )
    begin = em(model, corpus, max_iterations=0).model
    truth = weights_of(begin)
    for likelihood in result.log_likelihoods[:3]:
        expected, truth = enumerated_step(derivations, truth, group, frequencies, pseudo_count)
        assert likelihood == pytest.approx(expected, rel=1e-11, abs=1e-11)
    found = weights_of(result.model)
    assert list(found) == list(truth)
    assert_close(list(found.values()), list(truth.values()))
    return result.model


def weights_of(model: ProgramModel) -> dict[Fact, float]:
    return {
        (name, tuple(row)): math.exp(weight)
        for name, facts in model.facts.items()
        for row, weight in zip(facts.rows, facts.log_weights.tolist(), strict=True)
    }


def drawn(rng: np.random.Generator, rows: list) -> dict[tuple, float]:
    return {row: float(rng.normal()) for row in rows}


def hidden_markov(seed: int) -> tuple[HiddenMarkovModel, ProgramModel]:
    generator = torch.Generator().manual_seed(seed)
    dense = HiddenMarkovModel.random(3, 3, generator=generator)
    states = range(3)
    facts = {
        "start": Facts([(a,) for a in states], dense.initial),
        "transition": Facts(list(product(states, states)), dense.transition.reshape(-1)),
        "emission": Facts(list(product(states, "012")), dense.emission.reshape(-1)),
        "stop": [(a,) for a in states],
    }
    groups = ["start(_)", "transition(A,_)", "emission(A,_)"]  # stop is fixed
    return dense, ProgramModel(programs.hmm, facts, groups=groups)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_hmm_program_is_baum_welch_and_its_dense_twin(seed: int):
    dense, model = hidden_markov(seed)
    options = {"frequencies": FREQUENCIES, "max_iterations": 4, "tolerance": 0.0}
    found, twin = em(model, SENTENCES, **options), em(dense, SEQUENCES, **options)
    assert_close(found.log_likelihoods, twin.log_likelihoods)
    assert_close(found.model.log_weights.exp(), twin.model.log_weights.exp())
    assert found.perplexity == pytest.approx(twin.perplexity)
    truth = [x.exp().numpy() for x in (dense.initial, dense.transition, dense.emission)]
    for likelihood in found.log_likelihoods[:4]:
        expected, *truth = baum_welch_step(*truth, SEQUENCES, FREQUENCIES)
        assert likelihood == pytest.approx(expected, rel=1e-12)
    assert_close(found.model.log_weights.exp(), np.concatenate([x.reshape(-1) for x in truth]))
    assert torch.equal(found.model.facts["stop"].log_weights, torch.zeros(3, dtype=torch.float64))


def hmm_group(fact: Fact) -> Hashable:
    name, row = fact
    return {"transition": "next", "stop": "next"}.get(name, name), row[0] if name != "start" else ""


@pytest.mark.parametrize("pseudo_count", [0.0, 0.25])
def test_the_hmm_program_with_an_end(pseudo_count: float):
    rng = np.random.default_rng(0)
    tags, words = "ABC", "abc"
    facts = {
        "start": drawn(rng, [(t,) for t in tags]),
        "transition": drawn(rng, list(product(tags, tags))),
        "emission": drawn(rng, list(product(tags, words))),
        "stop": drawn(rng, [(t,) for t in tags]),
    }
    sentences = [list("ab"), list("c"), list("abca"), list("bb")]
    derivations = [list(hmm_paths(facts, words)) for words in sentences]
    corpus = [programs.sentence(words) for words in sentences]
    model = ProgramModel(programs.hmm, facts)
    check_steps(model, corpus, derivations, hmm_group, [1.0, 0.5, 2.0, 1.0], pseudo_count)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_program_of_a_grammar_is_the_grammar(seed: int):
    rng = np.random.default_rng(seed)
    rows = [*product("SAB", "SAB", "SAB"), *product("SAB", "xyz")]
    weights = rng.dirichlet(np.ones(12), 3).reshape(-1)
    rows.sort(key=lambda row: "SAB".index(row[0]))
    text = "".join(
        f"{row[0]} -> {' '.join(row[1:]) if len(row) == 3 else repr(row[1])} [{float(p)!r}]\n"
        for row, p in zip(rows, weights, strict=True)
    )
    grammar = Grammar.from_text(text)
    sentences = [list(w) for w in ("xyx", "z", "xxyzx", "yy", "zyxx")]
    facts = {"start": [("S",)], "rule": Facts(rows, np.log(weights))}
    model = ProgramModel(programs.cnf_inside, facts)
    corpus = [programs.sentence(words) for words in sentences]
    options = {"max_iterations": 30, "tolerance": 0.0}
    found, twin = em(model, corpus, **options), em(grammar, sentences, **options)
    assert_close(found.log_likelihoods, twin.log_likelihoods, rtol=1e-9)
    trained = zip(twin.model.rules, twin.model.log_weights.exp(), strict=True)
    order = {str(rule): p for rule, p in trained}
    wanted = [
        float(order[f"{r[0]} -> {' '.join(r[1:]) if len(r) == 3 else repr(r[1])}"]) for r in rows
    ]
    assert_close(found.model.facts["rule"].log_weights.exp(), wanted, rtol=1e-7, atol=1e-7)
    assert found.perplexity == pytest.approx(twin.perplexity, rel=1e-8)


def transducer(rng: np.random.Generator, letters: str) -> tuple[dict, np.ndarray, float]:
    """A memoryless transducer as facts, as a table with the empty string last, and δ(#)."""
    size = len(letters)
    table = rng.dirichlet(np.ones((size + 1) ** 2))
    delta, end = table[:-1], float(table[-1])
    delta = np.append(delta, 0.0).reshape(size + 1, size + 1)  # nothing never becomes nothing
    numbered = list(enumerate(letters))
    facts = {
        "initial": [("q",)],
        "final": logs({("q",): end}),
        "copy": logs({(a,): delta[i, i] for i, a in numbered}),
        "substitute": logs(
            {(a, b): delta[i, j] for i, a in numbered for j, b in numbered if i != j}
        ),
        "delete": logs({(a,): delta[i, -1] for i, a in numbered}),
        "insert": logs({(b,): delta[-1, j] for j, b in numbered}),
    }
    return facts, delta, end


@pytest.mark.parametrize("seed", SEEDS)
def test_the_edit_transducer_is_that_of_ristad_and_yianilos(seed: int):
    rng = np.random.default_rng(seed)
    facts, delta, end = transducer(rng, "abc")
    pairs = [("abca", "acca"), ("", "b"), ("cc", ""), ("bac", "abcab"), ("a", "a"), ("", "")]
    corpus = [programs.sentence_pair(list(x), list(y)) for x, y in pairs]
    groups = ["copy(_) + substitute(_,_) + delete(_) + insert(_) + final(_)"]
    model = ProgramModel(programs.edit_transducer, facts, groups=groups)
    found = em(model, corpus, max_iterations=5, tolerance=0.0)
    coded = [(["abc".index(a) for a in x], ["abc".index(b) for b in y]) for x, y in pairs]
    for likelihood in found.log_likelihoods[:5]:
        expected, delta, end = ristad_yianilos_step(delta, end, coded)
        assert likelihood == pytest.approx(expected, rel=1e-12)
    learned = {name: f.log_weights.exp() for name, f in found.model.facts.items()}
    assert_close(learned["final"], [end])
    assert_close(learned["copy"], delta.diagonal()[:3].copy())
    assert_close(learned["substitute"], delta[:3, :3][~np.eye(3, dtype=bool)])
    assert_close(learned["delete"], delta[:3, 3].copy())
    assert_close(learned["insert"], delta[3, :3].copy())
    assert found.perplexity is None


def test_the_edit_transducer_with_states():
    rng = np.random.default_rng(0)
    moves = {
        "copy": [(p, a, q) for p, q in product("pq", "pq") for a in "ab"],
        "substitute": [(p, a, b, q) for p, q in product("pq", "pq") for a, b in ("ab", "ba")],
        "delete": [(p, a, q) for p, q in product("pq", "pq") for a in "ab"],
        "insert": [(p, b, q) for p, q in product("pq", "pq") for b in "ab"],
    }
    facts = {
        "initial": drawn(rng, [("p",), ("q",)]),
        "final": drawn(rng, [("p",), ("q",)]),
        **{name: drawn(rng, rows) for name, rows in moves.items()},
    }
    pairs = [("ab", "b"), ("a", "ba"), ("", "a"), ("b", "b")]
    derivations = [
        [(("initial", (s,)), *path) for s in "pq" for path in edits(facts, s, *pair)]
        for pair in pairs
    ]
    corpus = [programs.sentence_pair(list(x), list(y)) for x, y in pairs]
    check_steps(
        ProgramModel(programs.edit_transducer, facts),
        corpus,
        derivations,
        lambda fact: "" if fact[0] == "initial" else fact[1][0],
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_inversion_transduction_grammars(seed: int):
    rng = np.random.default_rng(seed)
    facts = {
        "start": drawn(rng, [("X",), ("Y",)]),
        "straight": drawn(rng, [("X", "X", "Y"), ("Y", "X", "X")]),
        "inverted": drawn(rng, [("X", "Y", "X"), ("X", "X", "X")]),
        "pair": drawn(rng, list(product("XY", "ab", "cd"))),
        "source_only": drawn(rng, [("X", "a"), ("Y", "b")]),
        "target_only": drawn(rng, [("Y", "c"), ("X", "d")]),
    }
    pairs = [("ab", "dc"), ("a", "c"), ("bb", "d"), ("aab", "cd"), ("b", "cc")]
    derivations = [
        [
            (("start", root), *tree)
            for root in facts["start"]
            for tree in bilingual_trees(facts, root[0], tuple(x), tuple(y))
        ]
        for x, y in pairs
    ]
    assert max(map(len, derivations)) > 10
    corpus = [programs.sentence_pair(list(x), list(y)) for x, y in pairs]
    model = ProgramModel(programs.inversion_transduction_grammar, facts)
    check_steps(
        model, corpus, derivations, lambda fact: "root" if fact[0] == "start" else fact[1][0]
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_tree_adjoining_grammars(seed: int):
    rng = np.random.default_rng(seed)
    spellings: dict = {}
    while len(spellings) < 4 or not 10 <= max(map(len, spellings.values())) <= 1000:
        grammar = random_tree_grammar(rng)
        found = grammar.spellings(4)
        facts = grammar.facts
        spellings = {
            words: [d for d in ds if weigh(d, facts) > -math.inf] for words, ds in found.items()
        }
        spellings = {words: ds for words, ds in spellings.items() if ds}
    sentences = [*sorted(spellings, key=lambda words: (-len(spellings[words]), words))[:6], ("z",)]
    corpus = [programs.sentence(words) for words in sentences]
    derivations = [spellings.get(words, []) for words in sentences]

    def group(fact: Fact) -> Hashable:
        name, row = fact
        if name in ("initial", "auxiliary"):
            return name, row[1]
        return ("site", row[0]) if name in ("adjoin", "skip") else name if name == "start" else None

    model = ProgramModel(programs.tree_adjoining_grammar, facts)
    result = check_steps(model, corpus, derivations, group)
    assert em(result, corpus, max_iterations=1).left_out == (len(sentences) - 1,)
    assert_close(result.facts["leaf"].log_weights, model.facts["leaf"].log_weights)


def toy() -> tuple[ProgramModel, list[dict]]:
    """A grammar with an unused symbol, a rule of weight zero and a word that no rule has."""
    rules = {
        ("S", "S", "S"): -1.0,
        ("S", "a"): -0.5,
        ("S", "b"): -2.0,
        ("U", "a"): -3.0,
        ("U", "b"): -3.0,
        ("S", "c"): -math.inf,
    }
    model = ProgramModel(programs.cnf_inside, {"start": [("S",)], "rule": rules})
    return model, [programs.sentence(list(words)) for words in ("ab", "aab", "az", "c", "b")]


def test_unused_rules_and_sentences_without_a_tree():
    model, corpus = toy()
    result = em(model, corpus, max_iterations=2)
    assert result.left_out == (2, 3)
    assert result.model.facts["rule"].log_weights.exp().tolist()[3:] == pytest.approx([0.5, 0.5, 0])
    rules = dict.fromkeys([("S", "S", "S"), ("S", "a"), ("S", "b")], 0.0)
    sentences = ("ab", "aab", "b")
    derivations = [[d for d, _ in cnf_trees(rules, words, "S")] for words in sentences]
    truth = {("rule", row): p for row, p in zip(rules, [0.4, 0.4, 0.2], strict=True)}
    begin = model.with_log_weights([0.0, *np.log([0.4, 0.4, 0.2]), -1.0, -1.0, -math.inf])
    found = em(begin, corpus, max_iterations=1)
    expected, truth = enumerated_step(derivations, truth, lambda fact: "S", [1.0] * 3)
    assert found.log_likelihoods[0] == pytest.approx(expected)
    assert_close(found.model.facts["rule"].log_weights[:3].exp(), list(truth.values()))


def test_the_likelihood_is_a_function_of_any_parameters():
    """Also where a weight of the model itself is zero, and where those given are."""
    model, corpus = toy()
    likelihood = model.likelihood(corpus)
    weights = torch.tensor([0.0, -1.0, -0.5, -torch.inf, -1.0, -1.0, -0.25], dtype=torch.float64)
    found = likelihood(weights)
    no = -math.inf  # b weighs nothing, c does
    assert_close(found, torch.tensor([no, no, no, -0.25, no], dtype=torch.float64))


@pytest.mark.parametrize("scale", [1e4, -1e4])
def test_weights_far_apart_and_single_precision(scale: float):
    model, corpus = toy()
    weights = torch.tensor([0.0, scale, 0.5, -scale, 0.0, 0.0, 0.0], dtype=torch.float64)
    found = model.likelihood(corpus)(weights)
    s, a, b = scale, 0.5, -scale
    expected = [s + a + b, 2 * s + 2 * a + b + math.log(2), -math.inf, 0.0, b]
    assert_close(found, torch.tensor(expected, dtype=torch.float64))
    small = torch.tensor([0.0, -1.0, -0.5, -2.0, 0.0, 0.0, -torch.inf])
    assert model.likelihood(corpus)(small).dtype == torch.float32
    assert_close(model.likelihood(corpus)(small), model.likelihood(corpus)(small.double()))


def test_gradients_against_finite_differences():
    _, model = hidden_markov(0)
    likelihood = model.likelihood(SENTENCES[:3])
    scores = model.log_weights + torch.linspace(-1, 1, len(model.log_weights), dtype=torch.float64)

    def objective(scores: torch.Tensor) -> torch.Tensor:
        return likelihood(log_softmax(scores, model.distributions)).sum()

    torch.autograd.gradcheck(objective, scores.requires_grad_(), atol=1e-7)
    torch.autograd.gradgradcheck(objective, scores, atol=1e-6)


def test_gradient_training_reaches_the_likelihood_of_em():
    _, model = hidden_markov(1)
    model = em(model, SENTENCES, max_iterations=20).model  # from here both find the same maximum
    best = em(model, SENTENCES, tolerance=1e-12, max_iterations=5000)
    likelihood = model.likelihood(SENTENCES)
    scores = model.log_weights.clone().requires_grad_()
    optimiser = torch.optim.LBFGS([scores], max_iter=500, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        value = -likelihood(log_softmax(scores, model.distributions)).sum()
        value.backward()
        return value

    optimiser.step(loss)
    assert -loss().item() == pytest.approx(best.log_likelihood, abs=1e-3)


def test_softmax_with_zeros():
    scores = torch.tensor([0.0, 1.0, -torch.inf, -torch.inf, 3.0, 1e4], dtype=torch.float64)
    scores.requires_grad_()
    found = log_softmax(scores, [7, 7, 7, 9, 2, 2])
    expected = np.array([0, 1, -np.inf]) - math.log(1 + math.e)
    assert_close(found, np.array([*expected, -np.inf, 3 - 1e4, 0.0]))
    found[[0, 4, 5]].sum().backward()
    assert bool(scores.grad.isfinite().all())
    p = math.e / (1 + math.e)
    assert_close(scores.grad, np.array([p, -p, 0, 0, 1.0, -1.0]), atol=1e-9)


def test_checkpoints_restarts_and_other_corpora(tmp_path):
    model, corpus = toy()
    path = tmp_path / "run"
    options = {"restarts": 2, "max_iterations": 5, "checkpoint": path}
    first = em(model, corpus, generator=torch.Generator().manual_seed(1), **options)
    again = em(model, corpus, generator=torch.Generator().manual_seed(1), resume=True, **options)
    assert torch.equal(first.model.log_weights, again.model.log_weights)
    with pytest.raises(ArgumentError, match="corpus was"):
        em(model, corpus[:2], generator=torch.Generator().manual_seed(1), resume=True, **options)
    fixed = ProgramModel(model.program, model.facts, groups=["rule(X,_)"])
    with pytest.raises(ArgumentError, match="model was"):
        em(fixed, corpus, generator=torch.Generator().manual_seed(1), resume=True, **options)


def test_facts_of_corpora_are_told_apart(tmp_path):
    model, corpus = toy()
    as_facts = [{name: Facts(rows) for name, rows in example.items()} for example in corpus]
    em(model, as_facts, max_iterations=1, checkpoint=tmp_path / "run")
    as_facts[0]["word"] = Facts([("b", 0, 1), ("b", 1, 2)])
    with pytest.raises(ArgumentError, match="corpus was"):
        em(model, as_facts, max_iterations=1, checkpoint=tmp_path / "run", resume=True)


def wrong() -> Iterator:
    rule = {("S", "a"): 0.0}
    given = {"start": [("S",)], "rule": rule}
    words = programs.sentence(["a"])
    cnf = programs.cnf_inside
    yield "must be a list of sums", lambda: ProgramModel(cnf, given, groups="rule(X,_)")
    yield "no rule uses rul ", lambda: ProgramModel(cnf, given, groups=["rul(X)"])
    yield "expected a sum", lambda: ProgramModel(cnf, given, groups=["x += y"])
    yield "one sum", lambda: ProgramModel(cnf, given, groups=["start(_). 1 = rule(X,_)"])
    yield "facts must have weights to train", lambda: ProgramModel(cnf, given, groups=[])
    paths = Program("goal(X) += start(X).  1 = start(_).")
    yield "goal without arguments", lambda: ProgramModel(paths, {"start": [("S",)]})
    model = ProgramModel(cnf, given)
    yield r"corpus\[1\] must be facts", lambda: em(model, [words, ["a"]])
    yield r"corpus\[0\]: the model has the facts 'start'", lambda: em(model, [words | given])
    yield r"corpus\[1\]: .*rows of 'word'", lambda: em(model, [words, words | {"word": [("a",)]}])
    yield "log_weights must have shape", lambda: model.with_log_weights([0.0])


@pytest.mark.parametrize(("message", "call"), [pytest.param(m, c, id=m[:30]) for m, c in wrong()])
def test_misuse(message: str, call):
    with pytest.raises(ArgumentError, match=message):
        call()


def test_examples_that_cannot_be_grounded_are_named():
    unary = {("A", "B"): 0.0, ("B", "A"): 0.0}
    given = {"start": [("A",)], "rule": unary, "lexical": {("B", "b"): 0.0}}
    model = ProgramModel(programs.cky_unary, given)
    with pytest.raises(GroundingError, match=r"corpus\[1\]: the items form a cycle"):
        em(model, [programs.sentence(["a"]), programs.sentence(["b"])])
    with pytest.raises(GroundingError, match=r"corpus\[0\]: length is neither given"):
        em(model, [{"word": [("a", 0, 1)]}])
    given = {"start": [("S",)], "rule": {("S", "a"): 0.0}}
    with pytest.raises(GroundingError, match="limit of 1 edges"):
        em(ProgramModel(programs.cnf_inside, given, max_edges=1), [programs.sentence(["a"])])


def test_several_sums_and_rows_in_no_sum():
    model = ProgramModel(
        programs.cnf_inside,
        {"start": [("S",)], "rule": {("S", "S", "S"): -1.0, ("S", "a"): 0.0, ("S", "b"): 0.0}},
        groups=["1 = rule(X,_)."],
    )
    assert model.log_weights.tolist() == [0.0, 0.0]
    corpus = [programs.sentence(list("aab"))]
    trained = em(model, corpus).model
    assert_close(trained.facts["rule"].log_weights.exp(), [math.exp(-1), 2 / 3, 1 / 3])
    assert trained.ground(corpus[0]).count() == 2
    assert repr(trained) == "ProgramModel(2 probabilities in 1 distributions)"
