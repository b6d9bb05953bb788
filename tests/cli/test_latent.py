"""`inout induce --latent` and `inout parse --model`: latent models, from treebank to scores."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

from inout.cli.progress import counter
from inout.latent import LPCFG, LatentGrammar

GOLD = """\
(TOP (S (NP (PRP she)) (VP (VBD saw) (NP (DT the) (JJ old) (NN cat))) (. .)))
(TOP (S (NP (PRP it)) (VP (VBD ran)) (. .)))
(TOP (S (NP (PRP she)) (VP (VBD saw) (NP (DT the) (NN dog)) (PP (IN in) (NP (DT the) (NN park))))))
"""
RARE = "(TOP (S (NP (PRP it)) (VP (VBD barked)) (. .)))\n"
WORDS = "she saw the old cat .\nit ran .\nshe saw the dog in the park\n"
RAN = "(TOP (S (NP (PRP it)) (VP (VBD ran)) (. .)))"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A model by each method, trained once."""
    from inout.cli import main

    folder = tmp_path_factory.mktemp("models")
    (folder / "gold.mrg").write_text(GOLD * 40 + RARE, encoding="utf-8")
    for method in ("spectral", "em"):
        out = str(folder / f"{method}.lpcfg")
        treebank = str(folder / "gold.mrg")
        assert main(["induce", treebank, "--latent", "2", "--method", method, "-o", out]) == 0
    return folder


@pytest.fixture
def folder(files, models):
    for path in models.iterdir():
        (files / path.name).write_bytes(path.read_bytes())
    sentences = "she saw the old cat .\nit ran .\n\nshe saw ran the\n"
    (files / "dev.txt").write_text(sentences, encoding="utf-8")
    (files / "g.cfg").write_text("S -> 'a' [1.0]\n", encoding="utf-8")
    return files


def changed(folder, name, factor):
    """A model whose probabilities of sentences are those of the one trained by EM, times this."""
    grammar = LatentGrammar.load(folder / "em.lpcfg")
    layout = grammar.model.layout
    parameters = grammar.model.parameters.copy()
    parameters[: layout.root_offsets[-1]] *= factor
    replace(grammar, model=LPCFG(layout, parameters)).save(folder / name)
    return name


@pytest.mark.parametrize("method", ["spectral", "em"])
def test_a_model_is_trained_and_written(run, folder, method):
    outcome = run("induce", "gold.mrg", "--latent", "2", "--method", method, "-o", "m.lpcfg")
    assert (outcome.code, outcome.out) == (0, "")
    grammar = LatentGrammar.load(folder / "m.lpcfg")
    rules = f"{len(grammar.model.skeleton.binary)} binary rules"
    assert outcome.err.startswith(f"wrote m.lpcfg: {rules}, ")
    assert f", 2 latent values, {method}, " in outcome.err
    assert outcome.err.endswith(" s\n")
    told = grammar.training
    assert (told["method"], told["trees"]) == (method, 121)
    assert (told["horizontal"], told["vertical"]) == (0, 1)
    assert "NP|<>" in grammar.model.skeleton.nonterminals
    same = np.array_equal(
        grammar.model.parameters, LatentGrammar.load(folder / f"{method}.lpcfg").model.parameters
    )
    assert same


def test_binarisation_and_starts_have_options(run, folder):
    options = ("--horizontal", "1", "--vertical", "2", "--left", "--unknown-threshold", "0")
    training = ("--method", "em", "--em-start", "random", "--restarts", "1", "--iterations", "2")
    assert run("induce", "gold.mrg", "--latent", "2", "-o", "m", *options, *training).code == 0
    skeleton = LatentGrammar.load(folder / "m").model.skeleton
    assert {"NP^VP", "NP^VP|<NN>"} <= set(skeleton.nonterminals)
    assert sorted(skeleton.words) == sorted({*WORDS.split(), "barked"})
    first = (folder / "m").read_bytes()
    again = ("induce", "gold.mrg", "--latent", "2", "-o", "m", *options, *training)
    assert run(*again, "--seed", "1").code == 0
    assert (folder / "m").read_bytes() != first


def test_values_by_label(run, folder):
    """--latent has a number for some labels by name, or lets singular values decide."""
    outcome = run("induce", "gold.mrg", "--latent", "1,NN=2,NP=3", "-o", "m")
    assert outcome.code == 0
    model = LatentGrammar.load(folder / "m").model
    sizes = dict(zip(model.skeleton.nonterminals, model.sizes.tolist(), strict=True))
    assert (sizes["NN"], sizes["DT"], sizes["S"]) == (2, 1, 1)
    assert 1 < sizes["NP"] <= 3
    assert f"\nvalues: NP {sizes['NP']}, " in outcome.err
    for method in ("spectral", "em"):
        outcome = run("induce", "gold.mrg", "--latent", "auto", "--method", method, "-o", "m")
        assert outcome.code == 0
        assert "\nvalues: " in outcome.err
        assert LatentGrammar.load(folder / "m").model.sizes.max() > 2
    for wrong in ("NP", "0", "NP=0", "2,3", "NP=2,NP=3", "1.5", ""):
        outcome = run("induce", "gold.mrg", "--latent", wrong, "-o", "m")
        assert (outcome.code, outcome.err) == (
            2,
            f"inout: --latent must be a number of at least 1, N,LABEL=N,… or auto. Got {wrong!r}\n",
        )
    outcome = run("induce", "gold.mrg", "--latent", "QQ=2", "-o", "m")
    assert outcome.err == "inout: --latent must name labels of the trees. Got 'QQ'\n"


def test_the_estimator_of_the_paper(run, folder):
    options = ("--latent", "2", "-o", "m", "--estimator")
    assert run("induce", "gold.mrg", *options, "paper").code == 0
    grammar = LatentGrammar.load(folder / "m")
    assert grammar.training["estimator"] == "paper"
    assert not np.array_equal(
        grammar.model.parameters, LatentGrammar.load(folder / "spectral.lpcfg").model.parameters
    )
    assert "must be shrunk or paper" in run("induce", "gold.mrg", *options, "mine").err
    refused = run("induce", "gold.mrg", *options, "paper", "--method", "em")
    assert refused.err == "inout: --estimator needs --method spectral. Got --method em\n"


def test_sentences_without_trees(run, folder):
    options = ("--latent", "2", "-o", "m", "--method", "em", "--iterations", "3")
    outcome = run("induce", "gold.mrg", *options, "--sentences", "dev.txt")
    assert outcome.code == 0
    grammar = LatentGrammar.load(folder / "m")
    assert (grammar.training["sentences"], grammar.training["sentence_weight"]) == (4, 1.0)
    first = grammar.model.parameters
    weighted = ("--sentences", "dev.txt", "--sentence-weight", "50")
    assert run("induce", "gold.mrg", *options, *weighted).code == 0
    assert not np.array_equal(LatentGrammar.load(folder / "m").model.parameters, first)
    for wrong, message in (
        (("--sentence-weight", "2"), "--sentence-weight needs --sentences FILE"),
        (
            ("--sentences", "dev.txt", "--sentence-weight", "0"),
            "--sentence-weight must be above 0. Got 0.0",
        ),
        (("--sentences", "no.txt"), "no.txt: no such file"),
    ):
        assert run("induce", "gold.mrg", *options, *wrong).err.endswith(f"{message}\n")
    spectral = run("induce", "gold.mrg", "--latent", "2", "-o", "m", "--sentences", "dev.txt")
    assert spectral.err == "inout: --sentences needs --method em. Got --method spectral\n"


@pytest.mark.parametrize("given", [("--model", "spectral.lpcfg"), ("spectral.lpcfg",)])
@pytest.mark.parametrize("method", ["goodman", "min-risk", "max-rule"])
def test_trees_of_the_treebank_come_out(run, folder, given, method):
    outcome = run("parse", *given, "dev.txt", "--format", "bracketed", "--method", method)
    first = GOLD.splitlines()[0]
    assert outcome.out.splitlines() == [first, RAN, "(())", "(())"]
    assert outcome.err == (
        "dev.txt:3: no tree: the sentence has no words\n"
        "dev.txt:4: no tree: the rules of the model derive none\n"
        "note: 2 of 4 sentences have no tree\n"
    )


def test_eval_reads_what_parse_prints(run, folder):
    (folder / "words.txt").write_text(WORDS, encoding="utf-8")
    (folder / "three.mrg").write_text(GOLD, encoding="utf-8")
    parses = run("parse", "em.lpcfg", "words.txt", "--format", "bracketed")
    (folder / "parses.mrg").write_text(parses.out, encoding="utf-8")
    told = json.loads(run("eval", "three.mrg", "parses.mrg", "--json").out)
    assert told["all"]["f1"] == 1.0


def test_probabilities_are_shares_of_the_sentence(run, folder):
    told = json.loads(run("parse", "em.lpcfg", "--sentence", "it ran .", "--json").out)
    assert (told["found_by"], told["sign"], told["unknown"]) == ("latent", 1, [])
    (tree,) = told["trees"]
    # The rules have one tree for these words, up to what smoothing adds.
    assert tree["tree"] == RAN
    assert tree["probability"] == pytest.approx(1.0)
    assert tree["log_weight"] == pytest.approx(told["log_partition"])


def test_drawings_say_what_is_known(run, folder):
    outcome = run("parse", "em.lpcfg", "--sentence", "she walked .")
    assert outcome.code == 0
    assert "she walked .\nlog p(x) -" in outcome.out
    assert " · unknown: walked\n\n1  probability 1.0000  " in outcome.out
    run("induce", "gold.mrg", "--latent", "1", "--unknown-threshold", "0", "-o", "m")
    outcome = run("parse", "m", "--sentence", "she walked .")
    assert "she walked .\nno tree: the model does not know walked\n" in outcome.out


@pytest.mark.parametrize("shape", [(), ("--format", "bracketed"), ("--json",)])
def test_a_negative_probability_is_told(run, folder, shape):
    name = changed(folder, "negative.lpcfg", -1.0)
    one = run("parse", name, "--sentence", "it ran .", *shape)
    plain = run("parse", "em.lpcfg", "--sentence", "it ran .", *shape)
    note = "the model's probability was negative (posteriors used anyway)\n"
    if not shape:
        assert "log |p(x)| -" in one.out
        assert ", p(x) is negative\nfound by its posteriors anyway" in one.out
        assert one.err == ""
    else:
        assert one.err == f"note: 1 of 1 sentence: {note}"
    if shape == ("--json",):
        told, expected = json.loads(one.out), json.loads(plain.out)
        assert (told["sign"], told["found_by"]) == (-1, "negative")
        assert told["trees"] == expected["trees"]
        assert told["log_partition"] == expected["log_partition"]


def test_skeletal_rules_are_the_last_resort(run, folder):
    name = changed(folder, "nothing.lpcfg", 0.0)
    outcome = run("parse", name, "dev.txt", "--format", "bracketed")
    assert outcome.out.splitlines()[1:3] == [RAN, "(())"]
    assert "note: 2 of 4 sentences: parsed by the skeletal rules alone\n" in outcome.err
    drawn = run("parse", name, "--sentence", "it ran .", "--html", "p.html")
    assert "log p(x) -inf\nfound by the skeletal rules: " in drawn.out
    assert "1  without probability in the model\n" in drawn.out
    assert "found by the skeletal rules" in (folder / "p.html").read_text(encoding="utf-8")
    told = json.loads(run("parse", name, "--sentence", "it ran .", "--json").out)
    assert (told["found_by"], told["trees"][0]["probability"]) == ("skeletal", 0.0)


def test_a_wider_chart_has_its_own_numbers(run, folder):
    # S → S A and S → A S have 1/4, S → A A 1/2; an S over two words has the posterior 1/2.
    trees = "(TOP (S (S (A a) (A a)) (A a)))\n(TOP (S (A a) (S (A a) (A a))))\n"
    (folder / "two.mrg").write_text(trees, encoding="utf-8")
    run("induce", "two.mrg", "--latent", "1", "-o", "two.lpcfg")
    arguments = ("parse", "two.lpcfg", "--sentence", "a a a", "--json", "--threshold")
    outcome = run(*arguments, "0.9")
    told = json.loads(outcome.out)
    assert told["found_by"] == "wider"
    assert outcome.err == "note: 1 of 1 sentence: parsed with less pruning\n"
    assert told["trees"][0]["probability"] == pytest.approx(0.5)
    assert told["log_partition"] == pytest.approx(np.log(2 * 0.25 * 0.5))
    assert json.loads(run(*arguments, "0").out)["found_by"] == "latent"


@pytest.mark.parametrize("given", ["0", "none", "0.5"])
def test_pruning_has_a_threshold(run, folder, given):
    arguments = ("--sentence", "it ran .", "--format", "bracketed", "--threshold", given)
    assert run("parse", "spectral.lpcfg", *arguments).out == f"{RAN}\n"


def test_samples_of_a_model_of_probabilities(run, folder):
    arguments = ("--sentence", "it ran .", "--samples", "3", "--seed", "1", "--json")
    outcome = run("parse", "em.lpcfg", *arguments)
    assert [found["tree"] for found in json.loads(outcome.out)["samples"]] == [RAN] * 3
    assert run("parse", "em.lpcfg", *arguments).out == outcome.out
    negative = changed(folder, "negative.lpcfg", -1.0)
    outcome = run("parse", negative, *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert "inout: --samples needs a model of probabilities" in outcome.err


def test_the_page_has_the_treebank_s_labels(run, folder):
    outcome = run("parse", "em.lpcfg", "--sentence", "it ran .", "--html", "p.html")
    assert (outcome.code, outcome.err) == (0, "wrote p.html\n")
    page = (folder / "p.html").read_text(encoding="utf-8")
    for heading in ("Numbers", "Trees", "Chart"):
        assert f"<h2>{heading}</h2>" in page
    assert "it  [0, 1]&#10;NP  1&#10;PRP  1" in page
    assert "NP+PRP" not in page
    assert "|&lt;&gt;" not in page


def test_long_sentences_are_left_out(run, folder):
    (folder / "long.txt").write_text("it ran .\n" + "it " * 50 + "\n", encoding="utf-8")
    outcome = run("parse", "em.lpcfg", "long.txt", "--format", "bracketed", "--max-words", "40")
    assert outcome.out == f"{RAN}\n(())\n"
    assert "long.txt:2: no tree: 50 words are more than --max-words 40\n" in outcome.err
    (folder / "long.txt").write_text("it " * 100_000, encoding="utf-8")
    arguments = ("--max-words", "1000000", "--threshold", "0")
    assert "GiB of memory" in run("parse", "em.lpcfg", "long.txt", *arguments).out


OUT = ("-o", "x.lpcfg")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gold.mrg", "--latent", "2"), "inout: --latent needs -o FILE"),
        (("gold.mrg", "--latent", "0", *OUT), "inout: --latent must be a number of at least 1"),
        (
            ("gold.mrg", "--latent", "2", "--nary", *OUT),
            "inout: --nary cannot be used with --latent",
        ),
        (
            ("gold.mrg", "--latent", "2", "--to", "json", *OUT),
            "inout: --to cannot be used with --latent",
        ),
        (
            ("gold.mrg", "--latent", "2", "--start", "S", *OUT),
            "inout: --start cannot be used with --latent",
        ),
        (("gold.mrg", "--method", "em"), "inout: --method is for latent models"),
        (("gold.mrg", "--seed", "1"), "inout: --seed is for latent models: it needs --latent N"),
        (("gold.mrg", "--latent", "2", "--method", "emm", *OUT), "did you mean em?"),
        (
            ("gold.mrg", "--latent", "2", "--iterations", "2", *OUT),
            "inout: --iterations needs --method em. Got --method spectral",
        ),
        (
            ("gold.mrg", "--latent", "2", "--method", "em", "--restarts", "2", *OUT),
            "inout: --restarts needs --em-start random",
        ),
        (
            ("gold.mrg", "--latent", "2", "--method", "em", "--em-start", "splt", *OUT),
            "did you mean split?",
        ),
        (("no.mrg", "--latent", "2", *OUT), "no.mrg: no such file"),
        (("gold.mrg", "--latent", "2", "-o", "no/x"), "no/x: there is no directory no"),
        (("empty.mrg", "--latent", "2", *OUT), "trees must hold at least one tree"),
    ],
)
def test_wrong_arguments_of_induce_write_nothing(run, folder, arguments, message):
    (folder / "empty.mrg").write_text("", encoding="utf-8")
    complain(run, folder, ("induce", *arguments), message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "inout: missing argument GRAMMAR, or --model MODEL"),
        (("--model", "no.lpcfg", "dev.txt"), "no.lpcfg: no such file"),
        (("--model", ".", "dev.txt"), ".: is a directory, not a file"),
        (("--model", "-", "dev.txt"), "--model must be a file"),
        (("--model", "g.cfg", "dev.txt"), "g.cfg: not a latent model"),
        (("--model", "cut.lpcfg", "dev.txt"), "cut.lpcfg: the latent grammar is damaged"),
        (("cut.lpcfg", "dev.txt"), "cut.lpcfg: the latent grammar is damaged"),
        (("em.lpcfg", "no.txt"), "no.txt: no such file"),
        (
            ("em.lpcfg", "dev.txt", "--method", "viterbi"),
            "--method must be max-rule, min-risk or goodman",
        ),
        (("em.lpcfg", "dev.txt", "--k", "2"), "inout: --k 2 is for grammars only"),
        (("em.lpcfg", "dev.txt", "--count"), "inout: --count is for grammars only"),
        (("em.lpcfg", "dev.txt", "--from", "json"), "inout: --from is for grammars only"),
        (("em.lpcfg", "dev.txt", "--threshold", "1"), "inout: --threshold must be a number >= 0"),
        (("em.lpcfg", "dev.txt", "--threshold", "x"), "or none. Got 'x'"),
        (("g.cfg", "dev.txt", "--threshold", "0.1"), "inout: --threshold is for latent models"),
        (("g.cfg", "dev.txt", "--method", "goodman"), "--method goodman is for latent models"),
    ],
)
def test_wrong_arguments_of_parse_get_one_message(run, folder, arguments, message):
    (folder / "cut.lpcfg").write_bytes((folder / "em.lpcfg").read_bytes()[:-100])
    complain(run, folder, ("parse", *arguments), message)


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "em.lpcfg"),
        ("convert", "em.lpcfg", "--to", "json"),
        ("em", "em.lpcfg", "dev.txt", "-o", "x.cfg"),
        ("sample", "em.lpcfg"),
        ("surprisal", "em.lpcfg", "dev.txt"),
    ],
)
def test_other_commands_say_that_it_is_a_model(run, folder, arguments):
    complain(run, folder, arguments, "em.lpcfg: a latent model, which only `inout parse` reads")


def complain(run, folder, arguments, message):
    before = sorted(folder.iterdir())
    outcome = run(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
    assert sorted(folder.iterdir()) == before


def test_a_bar_leaves_standard_output_alone(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert not sys.stdout.isatty()
    with counter("sentences", 2) as step:
        print("(S a)")
        step(1)
    captured = capsys.readouterr()
    assert captured.out == "(S a)\n"
    assert "sentences" in captured.err


@pytest.mark.parametrize("options", [["--latent", "2"], ["--to", "json"]])
def test_the_treebank_is_not_overwritten(run, folder, options):
    before = (folder / "gold.mrg").read_bytes()
    outcome = run("induce", "gold.mrg", *options, "-o", "./gold.mrg")
    assert outcome.code == 2
    assert "-o must not be an input file" in outcome.err
    assert (folder / "gold.mrg").read_bytes() == before


def test_a_model_is_not_printed(run, folder):
    outcome = run("induce", "gold.mrg", "--latent", "2", "-o", "-")
    assert outcome.code == 2
    assert "--latent needs -o FILE" in outcome.err
    assert not (folder / "-").exists()
