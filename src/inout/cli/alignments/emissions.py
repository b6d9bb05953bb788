"""What an acoustic model says about frames, from a file of numpy; transcripts as its labels."""

from __future__ import annotations

import math
import tokenize
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inout._core.checks import expect
from inout._core.errors import ArgumentError, FileError
from inout.io.files import lines_of_file, read_bytes

NAMES = ("log_probs", "emissions", "logits")
SEPARATORS = ("|", " ", "▁")
# What numpy raises for files that are cut off, damaged or none of its own.
UNREADABLE = (
    *(ValueError, SyntaxError, EOFError, OSError, RuntimeError, MemoryError),
    *(tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)


@dataclass(frozen=True)
class Emissions:
    """Scores of labels at frames, the names of the labels, and how long a frame is."""

    scores: NDArray[np.float64]  # [t v]
    labels: tuple[str, ...]
    seconds: float | None  # of a frame

    def blank(self, given: str | None) -> int:
        """The column of the blank: its name or its number, by default the first."""
        if given is None:
            return 0
        if given in self.labels:
            return self.labels.index(given)
        good = given.isdecimal() and int(given) < len(self.labels)
        expect(good, "--blank", f"must be a label or a number below {len(self.labels)}", given)
        return int(given)


@dataclass(frozen=True)
class Transcript:
    """The columns of the labels to be aligned, and which of them make each word."""

    targets: list[int]
    words: list[tuple[str, range]]


def read_emissions(
    file: str, labels: str | None, seconds: float | None, *, probabilities: bool
) -> Emissions:
    """Read a file of numpy: scores [frames labels], and perhaps `labels` and `frame_seconds`."""
    arrays = _arrays(file)
    scores = _scores(file, arrays)
    if probabilities:
        if (scores < 0).any():
            raise FileError("probabilities must not be negative", file=file)
        with np.errstate(divide="ignore"):
            scores = np.log(scores)
    dead = (scores == -np.inf).all(1)
    if scores.shape[1] and dead.any():
        frame = int(dead.argmax())
        raise FileError(f"all labels have probability 0 at frame {frame}", file=file)
    names = tuple(lines_of_file(labels)) if labels else _labels(file, arrays)
    source = labels or file
    if len(names) != scores.shape[1]:
        raise FileError(
            f"must have a label for each of the {scores.shape[1]} columns. Got {len(names)}",
            file=source,
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise FileError(f"has the label {twice!r} twice", file=source)
    if seconds is None and "frame_seconds" in arrays:
        seconds = _seconds(file, arrays["frame_seconds"])
    return Emissions(scores, names, seconds)


def _arrays(file: str) -> Mapping[str, NDArray[Any]]:
    content = read_bytes(file)
    try:
        found = np.load(BytesIO(content), allow_pickle=False)
        if isinstance(found, np.ndarray):
            return {NAMES[0]: found}
        arrays = {name: found[name] for name in found.files}
        return {name: x for name, x in arrays.items() if isinstance(x, np.ndarray)}
    except UNREADABLE as error:
        raise FileError("must be a .npz or .npy file of numpy, without objects", file=file) from (
            error
        )


def _seconds(file: str, given: NDArray[Any]) -> float:
    """The length of a frame."""
    good = given.size == 1 and given.dtype.kind in "iuf"
    if not (good and 0 < given.item() < math.inf):
        wanted = "frame_seconds must be a positive number"
        raise FileError(f"{wanted}. Got {given.tolist()!r:.80}", file=file)
    return float(given.item())


def _scores(file: str, arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    tables = [name for name in NAMES if name in arrays]
    tables = tables or [name for name, array in arrays.items() if array.ndim == 2]
    if len(tables) != 1:
        names = ", ".join(arrays) or "nothing"
        wanted = f"must have one array [frames labels] called {NAMES[0]}"
        raise FileError(f"{wanted}. It has {names}", file=file)
    scores = arrays[tables[0]]
    if scores.ndim != 2 or scores.dtype.kind not in "iuf":
        shape = f"{scores.dtype} {list(scores.shape)}"
        raise FileError(f"{tables[0]} must be numbers [frames labels]. Got {shape}", file=file)
    result = scores.astype(np.float64)
    if np.isnan(result).any() or (result == np.inf).any():
        frame = int(np.argwhere(np.isnan(result) | (result == np.inf))[0, 0])
        raise FileError(f"{tables[0]} is NaN or infinite at frame {frame}", file=file)
    return result


def _labels(file: str, arrays: Mapping[str, NDArray[Any]]) -> tuple[str, ...]:
    if "labels" not in arrays:
        raise FileError("has no array of labels; name a file of them with --labels", file=file)
    labels = arrays["labels"]
    if labels.ndim != 1 or labels.dtype.kind not in "US":
        raise FileError("labels must be strings [labels]", file=file)
    return tuple(
        label.decode(errors="replace") if isinstance(label, bytes) else str(label)
        for label in labels.tolist()
    )


def split(text: str, emissions: Emissions, blank: int) -> Transcript:
    """A transcript as labels: its words, if all of them are labels, or else its characters.

    Characters that are no labels are tried in upper and lower case. Where a label stands for the
    space (|, a space or ▁), it is put between words.
    """
    known = {label: k for k, label in enumerate(emissions.labels) if k != blank}
    words = text.split()
    if not words:
        raise ArgumentError("transcript", "must have words")
    if all(word in known for word in words):
        places = [(word, range(k, k + 1)) for k, word in enumerate(words)]
        return Transcript([known[word] for word in words], places)
    space = next((known[label] for label in SEPARATORS if label in known), None)
    targets: list[int] = []
    found = []
    for word in words:
        if targets and space is not None:
            targets.append(space)
        begin = len(targets)
        targets += [_label(letter, word, known) for letter in word]
        found.append((word, range(begin, len(targets))))
    return Transcript(targets, found)


def _label(letter: str, word: str, known: Mapping[str, int]) -> int:
    for form in (letter, letter.lower(), letter.upper()):
        if form in known:
            return known[form]
    raise ArgumentError("transcript", f": no label for {letter!r} in {word!r}")


def transcript_of(text: str | None, file: str | None) -> str:
    """The transcript, from an option or a file."""
    if (text is None) == (file is None):
        raise ArgumentError(None, "give either --text TEXT or --transcript FILE")
    return text if text is not None else " ".join(lines_of_file(str(file)))


def most_frames(targets: Sequence[int]) -> int:
    """How many frames a transcript needs: one for each label, and blanks between like ones."""
    return len(targets) + sum(a == b for a, b in pairwise(targets))
