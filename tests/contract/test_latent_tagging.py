"""The example of tagging with hidden kinds of tags: its encoding, its model, what it shows."""

from __future__ import annotations

import math
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inout.latent import LatentParser
from tests.support import assert_close

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "latent_tagging.py"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    found = runpy.run_path(str(EXAMPLE))
    found["main"].__globals__["HELD_OUT"] = 150
    return found


def numbers(output: str, row: str) -> list[float]:
    (line,) = [line for line in output.splitlines() if line.startswith(row)]
    return [float(x) for x in re.findall(r"[-+]?\d+(?:\.\d+)?", line)]


def test_help(example: dict[str, Any], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        example["main"](["--help"])
    assert end.value.code == 0
    shown = capsys.readouterr().out
    assert "--seed" in shown
    assert "right-branching" in shown
    assert "python examples/" not in shown


def test_sequences_are_trees(example: dict[str, Any]):
    sequence = [("the", "D"), ("dog", "N"), ("barks", "V")]
    tree = example["tree_of"](sequence)
    assert str(tree) == "(D* (D the) (N* (N dog) (V* barks)))"
    assert example["sequence_of"](tree) == sequence
    assert str(example["tree_of"](sequence[2:])) == "(V* barks)"
    assert example["sequence_of"](example["tree_of"](sequence[2:])) == sequence[2:]


def test_the_grammar_is_the_hidden_markov_model(example: dict[str, Any]):
    truth = example["HiddenKinds"].random(torch.Generator().manual_seed(3))
    model = truth.grammar
    # Distributions: roots over N* alone; words and what follows for each value.
    sums = np.bincount(model.layout.distributions, model.parameters)
    assert_close(sums, np.ones(len(sums)))
    trees = model.sample(30, torch.Generator().manual_seed(4))
    drawn = example["Task"].drawn(50, torch.Generator().manual_seed(3))
    parser = LatentParser(drawn.truth, threshold=None)
    assert np.array_equal(parser.grammar.model.parameters, model.parameters)
    logs, signs = model.tree_log_probs(trees)
    assert (signs == 1).all()
    for x in range(len(trees)):
        words, tags = zip(*example["sequence_of"](trees.tree(x)), strict=True)
        ends = (len(words) - 1) * math.log(1 - example["STOP"]) + math.log(example["STOP"])
        joint = float(truth.states(words, tags).log_partition())
        assert_close(logs[x], joint + ends)
        if x < 10 and len(words) < 12:
            analyses = parser.given(words)
            hmm = truth.states(words)
            assert_close(analyses.log_partition, float(hmm.log_partition()) + ends)
            check_posteriors(example, analyses.posteriors, hmm, len(words))


def check_posteriors(example: dict[str, Any], posteriors: Any, hmm: Any, n: int) -> None:
    """Tags are as likely as all their kinds together."""
    of_states = hmm.marginals()["emissions"]  # [n s]
    shares = of_states.unflatten(-1, (len(example["TAGS"]), -1)).sum(-1)
    for i in range(n):
        for t, tag in enumerate(example["TAGS"]):
            assert_close(posteriors[f"{tag}*", i, n], float(shares[i, t]), rtol=1e-8)
            if i < n - 1:
                assert_close(posteriors[tag, i, i + 1], float(shares[i, t]), rtol=1e-8)


def test_hidden_kinds_are_found(example: dict[str, Any], capsys: pytest.CaptureFixture[str]):
    example["main"](["--sequences", "1500", "--seed", "1"])
    output = capsys.readouterr().out
    bigrams, *_ = numbers(output, "tag bigrams")
    spectral, *_ = numbers(output, "latent, spectral")
    em, *_ = numbers(output, "latent, EM")
    best, *_ = numbers(output, "the true model")
    assert min(spectral, em) > bigrams + 5
    assert max(spectral, em) < best + 1
    assert best > bigrams + 10


def test_the_same_seed_gives_the_same_table(
    example: dict[str, Any], capsys: pytest.CaptureFixture[str]
):
    tables = []
    for _ in range(2):
        example["main"](["--sequences", "200", "--iterations", "3", "--latent", "2"])
        output = capsys.readouterr().out
        tables.append([numbers(output, row)[0] for row in ("tag", "latent, s", "latent, E", "the")])
    assert tables[0] == tables[1]


@pytest.mark.exhaustive
def test_newspaper_text(
    example: dict[str, Any],
    data_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    if not (data_dir / "conll2000" / "train.tsv.xz").is_file():
        pytest.skip(f"no conll2000 in {data_dir} (set INOUT_DATA to where the data are)")
    monkeypatch.setenv("INOUT_DATA", str(data_dir))
    example["main"](["--conll2000", "--sequences", "600", "--iterations", "8"])
    output = capsys.readouterr().out
    assert "the true model" not in output
    bigrams, *_ = numbers(output, "tag bigrams")
    assert bigrams > 85
    assert numbers(output, "latent, EM")[0] > bigrams
    assert numbers(output, "latent, spectral")[0] > bigrams


def test_newspaper_text_is_asked_for(
    example: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("INOUT_DATA", str(tmp_path))
    with pytest.raises(SystemExit, match=re.escape("conll2000/train.tsv.xz")):
        example["main"](["--conll2000"])
