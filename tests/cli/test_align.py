"""`inout align`: times and confidences, and what it refuses."""

from __future__ import annotations

import json
import math
import zipfile

import numpy as np
import pytest

from tests import seeds

LABELS = ["-", "|", "a", "b", "c"]
FRAMES = [0, 2, 2, 3, 0, 3, 1, 4, 4, 0]  # ab b | c, with a blank between both b


@pytest.fixture
def speech(files):
    scores = np.full((len(FRAMES), len(LABELS)), -4.0)
    scores[np.arange(len(FRAMES)), FRAMES] = 3.0
    np.savez("speech.npz", log_probs=scores, labels=LABELS, frame_seconds=0.5)
    np.save("speech.npy", scores)
    np.save("chances.npy", np.exp(scores))
    (files / "labels.txt").write_text("\n".join(LABELS) + "\n", encoding="utf-8")
    return files


def test_words_and_labels_with_their_times(run, speech):
    outcome = run("align", "speech.npz", "--text", "Abb c")
    assert (outcome.code, outcome.err) == (0, "")
    rows = [line.split()[:3] for line in outcome.out.splitlines()[2:4]]
    assert rows == [["Abb", "0.500", "3.000"], ["c", "3.500", "4.500"]]
    outcome = run("align", "speech.npz", "--text", "abb c", "--letters")
    names = [line.split()[0] for line in outcome.out.splitlines()[2:7]]
    assert names == ["a", "b", "b", "|", "c"]


def test_json_has_all_of_it(run, speech):
    found = json.loads(run("align", "speech.npz", "--text", "abb c", "--json").out)
    assert found["frames"] == 10
    assert [(w["name"], w["start_frame"], w["stop_frame"]) for w in found["words"]] == [
        ("abb", 1, 6), ("c", 7, 9),
    ]  # fmt: skip
    assert [row["start"] for row in found["labels"]] == [0.5, 1.5, 2.5, 3.0, 3.5]
    assert all(0.98 < row["confidence"] <= 1 for row in found["labels"] + found["words"])


def test_the_same_from_other_files(run, speech):
    (speech / "said.txt").write_text("abb\nc\n", encoding="utf-8")
    known = json.loads(run("align", "speech.npz", "--text", "abb c", "--json").out)
    others = ["--labels", "labels.txt", "--transcript", "said.txt", "--json"]
    for file, more in (("speech.npy", []), ("chances.npy", ["--probabilities"])):
        found = json.loads(run("align", file, *others, *more, "--frame-seconds", "0.5").out)
        for row, same in zip(found["labels"], known["labels"], strict=True):
            assert row.pop("name") == same["name"]
            assert row == pytest.approx({key: same[key] for key in row})
    # Words that are labels are not spelled.
    found = json.loads(run("align", "speech.npz", "--text", "a b b | c", "--json").out)
    assert [row["name"] for row in found["words"]] == ["a", "b", "b", "|", "c"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["speech.npz"], "inout: give either --text TEXT or --transcript FILE"),
        (["speech.npz", "--text", " "], "inout: transcript must have words"),
        (["speech.npz", "--text", "abx"], "inout: transcript: no label for 'x' in 'abx'"),
        (["speech.npz", "--text", "ab" * 6], "inout: transcript needs 12 frames, but there are 10"),
        (["speech.npy", "--text", "a"], "speech.npy: has no array of labels"),
        (["labels.txt", "--text", "a"], "labels.txt: must be a .npz or .npy file"),
        (["none.npz", "--text", "a"], "none.npz: no such file"),
        (["speech.npz", "--text", "a", "--blank", "7"], "--blank must be a label or a number"),
        (["speech.npz", "--text", "a", "--frame-seconds", "0"], "--frame-seconds must be"),
        (["speech.npy", "--labels", "short.txt", "--text", "a"], "short.txt: must have a label"),
        (["speech.npz", "--text", "a", "--probabilities"], "must not be negative"),
        (["nan.npy", "--labels", "labels.txt", "--text", "a"], "NaN or infinite at frame 3"),
        (["two.npz", "--text", "a"], "two.npz: must have one array [frames labels]"),
        (
            ["zero.npy", "--labels", "labels.txt", "--text", "a"],
            "inout: transcript cannot be aligned",
        ),
    ],
)
def test_what_it_refuses(run, speech, arguments, message):
    (speech / "short.txt").write_text("-\na\n", encoding="utf-8")
    scores = np.load("speech.npy")
    np.savez("two.npz", one=scores, two=scores, labels=LABELS)
    np.save("zero.npy", np.where(np.arange(5) == 2, -np.inf, scores))
    scores[3, 2] = np.nan
    np.save("nan.npy", scores)
    outcome = run("align", *arguments)
    assert outcome.code == 2
    assert outcome.out == ""
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("seconds", [[0.02, 0.03], "short", 1j, math.nan, -1.0])
def test_a_length_of_frames_must_be_one_number(run, speech, seconds):
    scores = np.load("speech.npy")
    np.savez("odd.npz", log_probs=scores, labels=LABELS, frame_seconds=seconds)
    outcome = run("align", "odd.npz", "--text", "ab")
    assert outcome.code == 2
    assert "odd.npz: frame_seconds must be a positive number. Got" in outcome.err
    np.savez("one.npz", log_probs=scores, labels=LABELS, frame_seconds=[0.5])
    given = json.loads(run("align", "one.npz", "--text", "abb", "--json").out)
    assert given["frame_seconds"] == 0.5


@pytest.mark.parametrize("scale", [(), ("--probabilities",)])
def test_a_frame_without_a_possible_label_is_named(run, speech, scale):
    scores = np.load("chances.npy" if scale else "speech.npy")
    scores[4] = 0 if scale else -np.inf
    np.savez("dead.npz", log_probs=scores, labels=LABELS)
    outcome = run("align", "dead.npz", "--text", "ab", *scale)
    assert outcome.err == "dead.npz: all labels have probability 0 at frame 4\n"


def test_damaged_files_are_refused(run, speech):
    """Wherever a byte was changed, or the file was cut off: an answer or one line, no traceback."""
    np.savez_compressed("whole.npz", log_probs=np.load("speech.npy"), labels=LABELS)
    for name in ("whole.npz", "speech.npy"):
        whole = (speech / name).read_bytes()
        places = range(0, len(whole), 5 if seeds.exhaustive else 41)
        spoilt = [
            whole[:place] + bytes([whole[place] ^ 90]) + whole[place + 1 :] for place in places
        ]
        for content in (*spoilt, whole[: len(whole) // 2]):
            (speech / f"bad-{name}").write_bytes(content)
            outcome = run("align", f"bad-{name}", "--labels", "labels.txt", "--text", "ab")
            assert outcome.code in (0, 2)
            assert outcome.code == 0 or outcome.err.count("\n") == 1
    with zipfile.ZipFile("notes.npz", "w") as file:
        file.writestr("notes.txt", "no array")
    outcome = run("align", "notes.npz", "--text", "ab")
    assert "notes.npz: must have one array [frames labels]" in outcome.err
