"""The examples run as a new user would run them, and show what they are there to show."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def main_of(name: str) -> Callable[[list[str]], None]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]


def numbers(output: str, row: str) -> list[float]:
    """The numbers in the line of a table that starts with `row`."""
    (line,) = [line for line in output.splitlines() if line.startswith(row)]
    return [float(x) for x in re.findall(r"[-+]?\d+\.\d+", line)]


@pytest.mark.parametrize("name", ["semi_supervised_tagging", "segmenter"])
def test_help(name: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        main_of(name)(["--help"])
    assert end.value.code == 0
    shown = capsys.readouterr().out
    assert "--seed" in shown
    assert "semi-Markov" in shown or "random field" in shown  # what it does, not only how
    assert "python examples/" not in shown  # the usage has it already


@pytest.mark.exhaustive
def test_a_dictionary_helps_a_tagger(capsys: pytest.CaptureFixture[str]):
    main_of("semi_supervised_tagging")(["--draws", "1", "--steps", "60", "--unlabelled", "200"])
    _, gain = numbers(capsys.readouterr().out, "+ expectation criteria")
    assert gain > 5


def test_real_text_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("INOUT_DATA", str(tmp_path))
    with pytest.raises(SystemExit, match=re.escape("conll2000/train.tsv.xz")):
        main_of("semi_supervised_tagging")(["--conll2000"])


@pytest.mark.exhaustive
def test_a_segmenter_trained_for_f1(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    picture = tmp_path / "words.svg"
    main_of("segmenter")(["--steps", "30", "--plot", str(picture)])
    output = capsys.readouterr().out
    *_, before, likelihood_before = numbers(output, "likelihood  ")
    *_, after, likelihood_after = numbers(output, "expected F1  ")
    assert after > before + 3
    assert likelihood_after < likelihood_before
    drawing = ElementTree.fromstring(picture.read_text(encoding="utf-8"))
    columns = [x for x in drawing.iter() if x.get("class") == "io-column"]
    assert len(columns) > 6
    bottom = {round(float(x.get("y", "")) + float(x.get("height", ""))) for x in columns}
    assert len(bottom) == 1  # all stand on the same line


def test_the_segmenter_writes_the_same_page_again(tmp_path: Path):
    pages = [tmp_path / "one.html", tmp_path / "two.html"]
    for page in pages:
        main_of("segmenter")(["--steps", "2", "--pairs", "--plot", str(page), "--seed", "3"])
    first, second = (page.read_text(encoding="utf-8") for page in pages)
    assert first.startswith("<!DOCTYPE html>")
    assert first == second


@pytest.mark.exhaustive
def test_letters_and_phones_are_aligned(
    data_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setenv("INOUT_DATA", str(data_dir))
    page = tmp_path / "phones.html"
    main_of("letters_to_phones")(["--words", "600", "--epochs", "5", "--html", str(page)])
    output = capsys.readouterr().out
    for model in ("CTC", "transducer"):
        wrong, right, nats = numbers(output, model)
        assert wrong < 75
        assert right >= 0
        assert nats < 3  # of 39 phones: 3.7 by chance
    assert output.count("(CTC)") == output.count("(transducer)") == 5
    assert page.read_text(encoding="utf-8").count("<svg") == 10
