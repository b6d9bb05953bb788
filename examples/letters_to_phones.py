"""Letters to phones without alignments: a CTC model and a transducer, side by side.

    python examples/letters_to_phones.py [--words 4000] [--epochs 12] [--html FILE] [--seed 0]

The CMU pronouncing dictionary says how words are pronounced, but not which letters make which
phones. Both models sum over all alignments:

CTC has `SLOTS` frames for each letter; each frame is a phone or a blank, independently of the
others. A transducer reads a letter (a blank) or writes a phone, and sees the phones it wrote last.
The encoder is the same for both, a small bidirectional LSTM over the letters.

The table says how many phones are wrong in words not seen in training, by greedy decoding, and how
probable the right ones are. Then come words with their best alignments; `--html` draws them, with
the posterior probability of each letter for each phone. The first run also compiles the kernels.
"""

import argparse
import lzma
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.status import Status
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from inout.distributions import CTC, RNNT
from inout.nn import CTCHead, RNNTLoss
from inout.viz.heat_map import heat_map
from inout.viz.page import Html, html
from inout.viz.text import table

Word = tuple[str, list[str]]  # letters, phones

SLOTS = 2  # frames of CTC for each letter: x is K S
BATCH, HIDDEN, HELD_OUT = 64, 96, 500
SHOWN = ("phoenix", "knight", "schwartz", "thoughtful", "quixotic")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def read_words(path: Path) -> list[Word]:
    """Words in a-z with their first pronunciation, without stress."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    return [
        (word, [phone.rstrip("012") for phone in phones.split()])
        for word, variant, phones, _ in rows
        if variant == "1" and all("a" <= letter <= "z" for letter in word)
    ]


def numbered(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Rows padded with 0, and their lengths."""
    padded = pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    return padded, torch.tensor([len(row) for row in rows])


class Encoder(nn.Module):
    """States of letters that know the whole word: [b n 2h]."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS) + 1, HIDDEN)
        self.lstm = nn.LSTM(HIDDEN, HIDDEN, batch_first=True, bidirectional=True)

    def forward(self, letters: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(
            self.letters(letters), lengths, batch_first=True, enforce_sorted=False
        )
        return pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0]


class ByFrames(nn.Module):
    """CTC over `SLOTS` frames for each letter."""

    name = "CTC"

    def __init__(self, phones: int) -> None:
        super().__init__()
        self.encoder = Encoder()
        self.slots = nn.Linear(2 * HIDDEN, SLOTS * HIDDEN)
        self.head = CTCHead(features=HIDDEN, labels=phones + 1, batch_first=True)

    def frames(self, letters: Tensor, lengths: Tensor) -> Tensor:
        """An input for each frame: [b SLOTS*n h]."""
        states = self.slots(self.encoder(letters, lengths)).relu()
        return states.reshape(len(states), -1, HIDDEN)

    def losses(self, letters: Tensor, lengths: Tensor, phones: Tensor, sizes: Tensor) -> Tensor:
        found = self.distribution(letters, lengths, phones, sizes).log_partition()
        # Short words may need more frames than they have (and then teach nothing).
        return -found.where(found > -torch.inf, 0.0)

    def distribution(self, letters: Tensor, lengths: Tensor, phones: Tensor, sizes: Tensor) -> CTC:
        frames = self.frames(letters, lengths)
        return self.head.distribution(frames, phones, SLOTS * lengths, sizes)

    def decode(self, letters: Tensor, lengths: Tensor) -> list[list[int]]:
        return self.head.decode(self.frames(letters, lengths), SLOTS * lengths)

    def aligned(self, found: CTC) -> tuple[Tensor, list[int]]:
        """Posteriors [letter phone] of one word, and the letter of each phone."""
        chances = found.target_marginals()
        by_letter = 1 - (1 - chances.reshape(-1, SLOTS, chances.shape[-1])).prod(1)
        return by_letter, (found.segments().start // SLOTS).tolist()


class ByTransducer(nn.Module):
    """A transducer; the predictor sees the last two phones."""

    name = "transducer"

    def __init__(self, phones: int) -> None:
        super().__init__()
        self.encoder = Encoder()
        self.output = nn.Linear(2 * HIDDEN, phones + 1)
        self.phones = nn.Embedding(phones + 1, HIDDEN)
        self.predictor = nn.Sequential(
            nn.Linear(2 * HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, phones + 1)
        )
        self.loss = RNNTLoss(blank=0, reduction="none")

    def predictions(self, phones: Tensor) -> Tensor:
        """Scores of what follows each number of phones: [b u+1 v]."""
        known = self.phones(nn.functional.pad(phones, (2, 0)))
        return self.predictor(torch.cat([known[:, :-1], known[:, 1:]], -1))

    def losses(self, letters: Tensor, lengths: Tensor, phones: Tensor, sizes: Tensor) -> Tensor:
        encoded = self.output(self.encoder(letters, lengths))
        return self.loss.additive(encoded, self.predictions(phones), phones, lengths, sizes)

    def distribution(self, letters: Tensor, lengths: Tensor, phones: Tensor, sizes: Tensor) -> RNNT:
        encoded = self.output(self.encoder(letters, lengths))
        return RNNT.from_joiner(encoded, self.predictions(phones), phones, lengths, sizes)

    def decode(self, letters: Tensor, lengths: Tensor) -> list[list[int]]:
        """Greedy: at each letter the best phones until the blank is best."""
        encoded, results = self.output(self.encoder(letters, lengths)), []
        for row, length in zip(encoded, lengths.tolist(), strict=True):
            found: list[int] = []
            for scores in row[:length]:
                for _ in range(3):  # phones of one letter
                    last = torch.tensor([[0, 0, *found][-2:]])
                    best = int((scores + self.predictor(self.phones(last).flatten(1))[0]).argmax())
                    if best == 0:
                        break
                    found.append(best)
            results.append(found)
        return results

    def aligned(self, found: RNNT) -> tuple[Tensor, list[int]]:
        """Posteriors [letter phone] of one word, and the letter of each phone."""
        return found.marginals()["labels"][:, : int(found.target_lengths)], found.mode.tolist()


class Data:
    """Words as numbers; phone 0 is the blank."""

    def __init__(self, words: Sequence[Word]) -> None:
        self.phones = sorted({phone for _, phones in words for phone in phones})
        self.number = {phone: k for k, phone in enumerate(self.phones, start=1)}

    def batch(self, words: Sequence[Word]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Letters, their lengths, phones, their lengths."""
        letters = numbered([[1 + LETTERS.index(letter) for letter in word] for word, _ in words])
        return *letters, *numbered([[self.number[phone] for phone in own] for _, own in words])


def batches(words: Sequence[Word]) -> Iterator[Sequence[Word]]:
    """Words in groups."""
    return (words[k : k + BATCH] for k in range(0, len(words), BATCH))


def train(
    model: nn.Module,
    data: Data,
    words: Sequence[Word],
    epochs: int,
    draw: random.Random,
    line: Status,
) -> float:
    """Maximum likelihood by Adam; the seconds."""
    start, optimizer = time.perf_counter(), torch.optim.Adam(model.parameters(), 3e-3)
    plan = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 6e-3, total_steps=epochs * len(range(0, len(words), BATCH))
    )
    for epoch in range(epochs):
        total, order = 0.0, draw.sample(list(words), len(words))
        for some in batches(order):
            optimizer.zero_grad()
            loss = model.losses(*data.batch(some)).sum()
            (loss / len(some)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            plan.step()
            total += loss.item()
            line.update(
                f"{model.name}: pass {epoch + 1} of {epochs}, {total / len(words):.2f} nats"
            )
    return time.perf_counter() - start


def edits(a: Sequence[int], b: Sequence[int]) -> int:
    """Levenshtein's distance."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


def scores(model: nn.Module, data: Data, words: Sequence[Word]) -> tuple[float, float, float]:
    """Phones wrong in %, words right in %, nats for each phone."""
    wrong = right = nats = 0.0
    with torch.no_grad():
        for some in batches(words):
            letters, lengths, phones, sizes = data.batch(some)
            for found, row, size in zip(
                model.decode(letters, lengths), phones.tolist(), sizes.tolist(), strict=True
            ):
                wrong += edits(found, row[:size])
                right += found == row[:size]
            nats += float(model.losses(letters, lengths, phones, sizes).sum())
    count = sum(len(phones) for _, phones in words)
    return 100 * wrong / count, 100 * right / len(words), nats / count


def drawn(word: str, phones: Sequence[str], letters: Sequence[int]) -> str:
    """A word above its phones, each below its letter."""
    cells = [[word[k], []] for k in range(len(word))]
    for phone, k in zip(phones, letters, strict=True):
        cells[k][1].append(phone)
    below = [" ".join(own) or "·" for _, own in cells]
    above = [letter.ljust(len(text)) for (letter, _), text in zip(cells, below, strict=True)]
    return "  ".join(above).rstrip() + "\n" + "  ".join(below)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the experiment."""
    parser = argparse.ArgumentParser(
        description="Letters to phones by CTC and by a transducer, with their alignments."
    )
    parser.add_argument("--words", type=int, default=4000, help="training words")
    parser.add_argument("--epochs", type=int, default=12, help="passes over them")
    parser.add_argument("--html", metavar="FILE", help="draw the alignments")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)

    path = Path(os.environ.get("INOUT_DATA", "../shared/data")) / "cmudict" / "cmudict.tsv.xz"
    if not path.exists():
        sys.exit(f"needs {path}; set INOUT_DATA to the directory of data sets")
    draw = random.Random(options.seed)
    words = read_words(path)
    data = Data(words)
    shown = [pair for pair in words if pair[0] in SHOWN]
    rest = draw.sample([pair for pair in words if pair[0] not in SHOWN], options.words + HELD_OUT)
    held_out, known = rest[:HELD_OUT], rest[HELD_OUT:]

    console = Console(highlight=False, stderr=True)
    torch.manual_seed(options.seed)  # noqa: TID251 (modules draw their weights from it)
    models = [ByFrames(len(data.phones)), ByTransducer(len(data.phones))]
    rows = []
    for model in models:
        with console.status(model.name) as line:
            seconds = train(model, data, known, options.epochs, draw, line)
            rows.append(
                [model.name, *(f"{x:.2f}" for x in scores(model, data, held_out)), f"{seconds:.0f}"]
            )
    headers = ["model", "phones wrong, %", "words right, %", "nats a phone", "training, s"]
    print(table(rows, headers))

    pictures: list[tuple[str, str]] = []
    for word, phones in shown:
        print(f"\n{word}")
        for model in models:
            with torch.no_grad():
                letters, lengths, numbers, sizes = data.batch([(word, phones)])
                found = model.distribution(letters, lengths, numbers, sizes)[0]
                posteriors, best = model.aligned(found)
            print(f"\n{drawn(word, phones, best)}   ({model.name})")
            marked = [(letter, k) for k, letter in enumerate(best)]
            picture = heat_map(posteriors.clamp(0, 1).tolist(), list(word), phones, marked=marked)
            pictures.append((f"{word}, {model.name}", Html(picture)))
    if options.html:
        lead = "How probable it is that a letter makes a phone; the best alignment has frames."
        Path(options.html).write_text(html("Letters to phones", pictures, lead), encoding="utf-8")
        print(f"\nwrote {options.html}")


if __name__ == "__main__":
    main()
