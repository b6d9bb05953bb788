"""`inout context`: taggers trained, used and judged from the shell."""

from __future__ import annotations

import io
import json
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

from inout.cli import main
from inout.contexts.model import ContextModel
from inout.io.tagged import read_tagged, write_tagged

CONLL = "The DT B\ncat NN I\nsat VBD O\n\nShe PRP B\nran VBD O\n"


def example(count: int, seed: int):
    """Letters of a few similar words, half of them unreadable."""
    random = np.random.default_rng(seed)
    sequences, labels = [], []
    for word in random.choice(["abab", "bcbc", "abcb", "acab", "caca"], count):
        seen = [letter if random.random() < 0.5 else "x" for letter in word]
        sequences.append([{f"seen={letter}": 1.0, "bias": 0.5} for letter in seen])
        labels.append(list(word))
    return sequences, labels


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Files, and a model trained on them once."""
    folder = tmp_path_factory.mktemp("context")
    write_tagged(folder / "train.tsv", *example(24, 0))
    write_tagged(folder / "test.tsv", *example(20, 1))
    (folder / "train.conll").write_text(CONLL, encoding="utf-8")
    train = ["context", "train", "--epochs", "2", "--order", "3"]
    assert main([*train, str(folder / "train.tsv"), "-o", str(folder / "model.ctx")]) == 0
    conll = [str(folder / "train.conll"), "--from", "conll"]
    assert main([*train, *conll, "-o", str(folder / "conll.ctx")]) == 0
    return folder


def typed(monkeypatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def blocks(text: str) -> list[list[str]]:
    """The lines of each sequence of an answer."""
    assert text.endswith("\n\n")
    return [block.split("\n") for block in text[:-2].split("\n\n")]


def test_a_model_is_trained_and_described(run, folder):
    told = run("context", "train", "train.tsv", "-o", "new.ctx", "--dev", "test.tsv",
               "--epochs", "3", "--size", "5")  # fmt: skip
    assert (told.code, told.err) == (0, "")
    lines = told.out.splitlines()
    assert lines[0].split("  ")[0] == "epoch"
    assert [line.split()[0] for line in lines[2:5]] == ["1", "2", "3"]
    assert all(line.count("%") == 2 for line in lines[2:5])
    assert "24 sequences, 96 positions" in told.out
    assert "contexts of size 5" in told.out
    model = ContextModel.load(folder / "new.ctx")
    assert (model.labels, model.settings.size, model.settings.order) == (("a", "b", "c"), 5, 4)
    assert model.training["epochs"] == 3
    assert model.training["form"] == "features"


def test_likelihoods_and_dev_scores_are_those_of_the_model(run, folder):
    told = run("context", "train", "train.tsv", "-o", "new.ctx", "--dev", "test.tsv", "--json",
               "--epochs", "2", "--order", "3")  # fmt: skip
    answer = json.loads(told.out)
    assert answer["sequences"] == 24
    first, last = answer["epochs"]
    assert first["log_likelihood"] < last["log_likelihood"] < 0
    data = list(read_tagged("test.tsv"))
    found = ContextModel.load("new.ctx").tag([sequence.positions for sequence in data])
    right = [a.labels == b.labels for a, b in zip(found, data, strict=True)]
    assert (answer["epoch"], last["dev_sequences"]) == (2, np.mean(right))
    # The same seed gives the same model, bit for bit.
    assert np.array_equal(
        ContextModel.load("new.ctx").emission, ContextModel.load("model.ctx").emission
    )


@pytest.mark.parametrize(
    "options",
    [
        ("--beam",),
        ("--beam", "--learn-escape"),
        ("--memory", "none"),
        ("--memory", "7"),
        ("--method", "lbfgs", "--l2", "0.1"),
        ("--seed", "7", "--step", "0.1", "--delta", "0.01"),
        ("--threads", "2", "--truncate", "0.05"),
        ("--ordering", "right-to-left"),
        ("--ordering", "middle-out", "--beam"),
    ],
    ids=" ".join,
)
def test_other_kinds_of_models(run, folder, options):
    told = run(
        "context", "train", "train.tsv", "-o", "new.ctx", "--order", "3", "--epochs", "1", *options
    )
    assert told.code == 0, told.err
    settings = ContextModel.load("new.ctx").settings
    assert settings.beam == ("--beam" in options)
    memory = {"--memory": {"none": None, "7": 7}.get(options[1]) if len(options) > 1 else None}
    wanted = memory["--memory"] if "--memory" in options else None if settings.beam else 2
    assert settings.memory == wanted
    assert settings.ordering == (options[1] if "--ordering" in options else "left-to-right")
    assert run("context", "tag", "new.ctx", "test.tsv").code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--threads", "0"), "--threads must be"),
        (("--threads", "2", "--method", "lbfgs"), "--threads needs --method adagrad"),
        (("--truncate", "0.1", "--method", "lbfgs"), "--truncate needs --method adagrad"),
        (("--truncate", "-1"), "--truncate must be a finite number"),
        (("--ordering", "upwards"), "--ordering must be left-to-right"),
    ],
)
def test_options_that_do_not_fit(run, folder, options, message):
    told = run("context", "train", "train.tsv", "-o", "new.ctx", *options)
    assert told.code == 2
    assert message in told.err


def test_orderings_are_those_of_the_library():
    from inout.cli.commands.context import ORDERINGS
    from inout.contexts import orderings

    assert orderings.ORDERINGS == ORDERINGS


def test_labels_have_their_probabilities(run, folder):
    data = list(read_tagged("test.tsv"))
    model = ContextModel.load("model.ctx")
    found = model.tag([sequence.positions for sequence in data])
    told = run("context", "tag", "model.ctx", "test.tsv", "--confidence")
    assert (told.code, told.err) == (0, "")
    joint = [
        model.labels.index(label) == row.argmax()
        for tagging in found
        for label, row in zip(tagging.labels, tagging.marginals, strict=True)
    ]
    assert not all(joint), "data whose best labels are always the best one by one"
    for block, tagging in zip(blocks(told.out), found, strict=True):
        assert block[0].split(" ")[:2] == ["#", "confidence"]
        assert float(block[0].split(" ")[2]) == pytest.approx(tagging.confidence, abs=1e-4)
        assert [line.split("\t")[0] for line in block[1:]] == tagging.labels
        shown = [float(line.split("\t")[1]) for line in block[1:]]
        columns = [model.labels.index(label) for label in tagging.labels]
        assert shown == pytest.approx(tagging.marginals[range(4), columns], abs=1e-4)


def test_all_labels_of_a_position(run, folder):
    told = run("context", "tag", "model.ctx", "test.tsv", "--marginals")
    for block in blocks(told.out):
        for line in block:
            _, *fields = line.split("\t")
            shares = [float(field.rpartition(":")[2]) for field in fields]
            assert {field.rpartition(":")[0] for field in fields} == {"a", "b", "c"}
            assert sum(shares) == pytest.approx(1, abs=1e-3)
            assert shares == sorted(shares, reverse=True)


def test_unsure_answers_are_left_out(run, folder):
    everything = blocks(run("context", "tag", "model.ctx", "test.tsv", "--confidence").out)
    told = run("context", "tag", "model.ctx", "test.tsv", "--confidence", "--at-least", "0.8")
    left_out = 0
    for before, after in zip(everything, blocks(told.out), strict=True):
        sure = float(before[0].split(" ")[2]) >= 0.8
        left_out += not sure
        labels = [line.split("\t")[0] for line in after[1:]]
        assert labels == ([line.split("\t")[0] for line in before[1:]] if sure else ["?"] * 4)
    assert 0 < left_out < 20
    assert told.err == (
        f"note: {20 - left_out} of 20 sequences answered, with a confidence of at least 0.8\n"
    )


def test_json_from_standard_input(run, folder, monkeypatch):
    typed(monkeypatch, "?\tseen=a\n?\tseen=b\n\n\tseen=c\n")
    told = run("context", "tag", "model.ctx", "--json", "--marginals", "--at-least", "0")
    first, second = map(json.loads, told.out.splitlines())
    assert first["labels"] == ["a", "b"]
    assert (first["place"], second["place"]) == ("<stdin>:1", "<stdin>:4")
    assert first["answered"] is True
    assert sum(first["marginals"][1].values()) == pytest.approx(1)
    assert first["probabilities"][0] == first["marginals"][0]["a"]


def test_more_contexts_than_in_training(run, folder):
    few = run("context", "tag", "model.ctx", "test.tsv", "--confidence", "--size", "0")
    many = run("context", "tag", "model.ctx", "test.tsv", "--confidence", "--size", "500")
    assert few.code == many.code == 0
    assert few.out != many.out


def test_words_in_columns(run, folder, monkeypatch):
    # The model remembers what kind of file it was trained on, and how many columns that had.
    typed(monkeypatch, "A DT\ndog NN\nran VBD\n")
    told = run("context", "tag", "conll.ctx")
    (lines,) = blocks(told.out)
    assert [line.split("\t")[0] for line in lines] == ["B", "I", "O"]
    same = run("context", "tag", "conll.ctx", "train.conll")
    assert same.out == run("context", "tag", "conll.ctx", "train.conll", "--from", "conll").out


def test_strange_features_are_noticed(run, folder):
    (folder / "strange.tsv").write_text("a\tnothing\n\na\tnone\n", encoding="utf-8")
    told = run("context", "tag", "model.ctx", "strange.tsv")
    assert told.code == 0
    assert told.err.startswith("note: the model knows no feature of 2 sequences; is DATA in")
    told = run("context", "curve", "model.ctx", "strange.tsv")
    assert "note: model.ctx: the model knows no feature" in told.err


def test_models_without_features_are_no_cause_for_a_note(run, folder):
    (folder / "bare.tsv").write_text("a\nb\n\na\nb\n", encoding="utf-8")
    assert run("context", "train", "bare.tsv", "-o", "bare.ctx", "--epochs", "1").code == 0
    assert run("context", "tag", "bare.ctx", "bare.tsv").err == ""
    assert run("context", "curve", "bare.ctx", "bare.tsv").err == ""


def test_one_seed_makes_one_file(run, folder):
    for name in ("one.ctx", "two.ctx"):
        run("context", "train", "train.tsv", "-o", name, "--epochs", "2", "--seed", "3")
    assert (folder / "one.ctx").read_bytes() == (folder / "two.ctx").read_bytes()


def test_standard_input_may_be_closed(run, folder, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    told = run("context", "tag", "model.ctx")
    assert (told.code, told.err) == (2, "<stdin>: standard input is closed\n")


def test_the_curve_and_its_numbers(run, folder):
    told = run("context", "curve", "model.ctx", "test.tsv", "--json", "--precision", "0.9")
    answer = json.loads(told.out)
    data = list(read_tagged("test.tsv"))
    found = ContextModel.load("model.ctx").tag([sequence.positions for sequence in data])
    right = [a.labels == b.labels for a, b in zip(found, data, strict=True)]
    hits = [p == w for a, b in zip(found, data, strict=True)
            for p, w in zip(a.labels, b.labels, strict=True)]  # fmt: skip
    assert 0 < np.mean(right) < np.mean(hits) < 1, "data that could tell nothing"
    assert answer["accuracy"] == np.mean(right)
    assert answer["label_accuracy"] == np.mean(hits)
    assert [point["confidence"] for point in answer["curve"]] == pytest.approx(
        sorted((tagging.confidence for tagging in found), reverse=True)
    )
    assert answer["curve"][-1] == {
        "confidence": answer["curve"][-1]["confidence"],
        "precision": answer["accuracy"],
        "recall": 1.0,
    }
    sure = [p["recall"] for p in answer["curve"] if p["precision"] >= 0.9]
    assert answer["recall"] == max(sure, default=0)

    text = run("context", "curve", "model.ctx", "test.tsv", "--precision", "0.9")
    assert (text.code, text.err) == (0, "")
    assert f"{answer['accuracy']:.2%} (the model expects" in text.out
    assert "recall at 0.9 precision" in text.out
    assert text.out.rstrip().splitlines()[-1].startswith("100.0%")


def test_pictures_and_pages(run, folder):
    told = run("context", "curve", "model.ctx", "test.tsv", "--svg", "c.svg", "--html", "c.html",
               "--also", "model.ctx")  # fmt: skip
    assert told.code == 0
    assert told.err == "wrote c.svg\nwrote c.html\n"
    root = ElementTree.fromstring((folder / "c.svg").read_text(encoding="utf-8"))
    names = [e.text for e in root.iter() if e.get("class") == "io-name"]
    assert names == ["1: model.ctx", "2: model.ctx", "0.99 precision"]
    page = (folder / "c.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 2  # the picture has an inner one
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert told.out.count("all labels right") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train none.tsv -o x.ctx", "none.tsv: no such file"),
        ("train train.tsv -o train.tsv", "inout: -o must not be an input file"),
        ("train train.tsv -o test.tsv --dev test.tsv", "inout: -o must not be"),
        ("train train.tsv -o no/x.ctx", "no/x.ctx: there is no directory no"),
        ("train train.tsv -o -", "inout: -o must be a file"),
        ("train train.tsv", "inout: Missing option '--out' / '-o'"),
        ("train train.conll -o x.ctx", "fields must be separated by tabs"),
        ("train train.conll -o x.ctx", "--from conll reads words in columns"),
        ("train empty.tsv -o x.ctx", "empty.tsv: no sequences"),
        ("train partly.tsv -o x.ctx", "partly.tsv:3: sequences must have labels"),
        ("train train.tsv -o x.ctx --order 0", "inout: --order must be at least 1"),
        ("train train.tsv -o x.ctx --size 99999999999999999999", "--size must be at most 1000000"),
        ("train train.tsv -o x.ctx --order 99999999999999999999", "--order must be at most"),
        ("train train.tsv -o x.ctx --memory 99999999999999999999", "--memory must be at most"),
        ("tag model.ctx test.tsv --size 99999999999999999999", "--size must be at most 1000000"),
        ("train train.tsv -o x.ctx --step 1e308", "training must keep weights finite"),
        ("train train.tsv -o x.ctx --size -1", "inout: --size must be at least 0"),
        ("train train.tsv -o x.ctx --epochs 0", "inout: --epochs must be at least 1"),
        ("train train.tsv -o x.ctx --memory 2", "--memory must be an integer of at least 3"),
        ("train train.tsv -o x.ctx --memory all", "--memory must be an integer of at least 3"),
        ("train train.tsv -o x.ctx --beam --memory 4", "--memory must be none with --beam"),
        ("train train.tsv -o x.ctx --learn-escape", "--learn-escape needs --beam"),
        ("train train.tsv -o x.ctx --method adagard", "did you mean adagrad?"),
        ("train train.tsv -o x.ctx --method lbfgs --step 1", "--step needs --method adagrad"),
        ("train train.tsv -o x.ctx --l2 1", "--l2 needs --method lbfgs"),
        ("train train.tsv -o x.ctx --step 0", "--step must be a finite number above 0"),
        ("train train.tsv -o x.ctx --step nan", "--step must be a finite number above 0"),
        ("train train.tsv -o x.ctx --from tsv", "--from must be features or conll. Got 'tsv'"),
        ("train train.tsv -o x.ctx --seed 9223372036854775808", "--seed must be"),
        ("tag train.tsv test.tsv", "train.tsv: this is no context model"),
        ("tag model.ctx none.tsv", "none.tsv: no such file"),
        ("tag - -", "only one input can be standard input"),
        ("train - -o x.ctx --dev -", "only one input can be standard input"),
        ("tag model.ctx bad.tsv", "bad.tsv:1: the value of a feature must be a finite number"),
        ("tag model.ctx test.tsv --at-least 90", "--at-least must be from 0 to 1"),
        ("curve model.ctx test.tsv --precision nan", "--precision must be from 0 to 1"),
        ("curve model.ctx empty.tsv", "empty.tsv: no sequences"),
        ("curve model.ctx partly.tsv", "partly.tsv:3: sequences must have labels"),
        ("curve model.ctx test.tsv --svg model.ctx", "--svg must not be an input file"),
        ("curve model.ctx test.tsv --html no/x.html", "no/x.html: there is no directory no"),
        ("curve model.ctx test.tsv --html x --svg x", "must be different files. Got x twice"),
        ("curve model.ctx - --also model.ctx", "DATA must be files"),
        ("tags", "No such command 'tags'"),
    ],
)
def test_mistakes_are_told_in_one_line(run, folder, arguments, message):
    (folder / "empty.tsv").write_text("\n\n", encoding="utf-8")
    (folder / "partly.tsv").write_text("a\tseen=a\n\n?\tseen=a\n", encoding="utf-8")
    (folder / "bad.tsv").write_text("a\tseen:nan\n", encoding="utf-8")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    told = run("context", *arguments.split())
    assert told.code == 2
    assert told.out == ""
    assert message in told.err
    assert told.err.count("\n") == 1
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_help_has_examples(run):
    for command in ("train", "tag", "curve"):
        told = run("context", command, "--help")
        assert told.code == 0
        assert f"inout context {command} " in told.out
