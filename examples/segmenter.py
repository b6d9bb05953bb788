"""Train a segmenter for likelihood, then for F1: where are the words in thechildrenlaughed?

    python examples/segmenter.py [--plot segments.svg] [--pairs] [--seed 0]

A semi-Markov model scores every stretch of letters as a word, by its width and by its first and
its last letter: far too simple to be right. Likelihood makes it spread its bets; trained for the
expected F1 of its segmentations it gets more words right, and is surer than it should be. With
`--pairs` it looks at the first two and last two letters: a better model has less to gain.

Then the distribution of the number of words of one sentence, exactly, with its mean and variance:
in the terminal, and as a picture with `--plot FILE` (SVG, or a page if it ends in .html). The first
run also compiles the CPU kernels.
"""

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from inout import SemiMarkov
from inout.grammars import library
from inout.moments import expected_f_of_event
from inout.viz import page, text
from inout.viz.plot import Columns, histogram

WIDEST = 10  # letters of a word
LETTERS = 27  # a to z, and 0 where there is none
BATCH, RIDGE = 50, 1e-3
Weights = dict[str, Tensor]


@dataclass
class Text:
    """Sentences without spaces [b n], where their words end [b n] (0, else -1), lengths [b]."""

    sentences: list[list[str]]
    letters: Tensor
    words: Tensor
    lengths: Tensor

    def __getitem__(self, rows: Tensor) -> "Text":
        some = [self.sentences[i] for i in rows.tolist()]
        return Text(some, self.letters[rows], self.words[rows], self.lengths[rows])


def encoded(sentences: list[list[str]]) -> Text:
    joined = ["".join(words).lower() for words in sentences]
    lengths = torch.tensor([len(line) for line in joined])
    letters = torch.zeros(len(sentences), int(lengths.max()), dtype=torch.long)
    ends = torch.full_like(letters, -1)
    for i, (words, line) in enumerate(zip(sentences, joined, strict=True)):
        letters[i, : len(line)] = torch.tensor([ord(letter) - ord("a") + 1 for letter in line])
        widths = torch.tensor([len(word) for word in words])
        ends[i, widths.cumsum(0) - 1] = 0
    return Text(sentences, letters, ends, lengths)


def start(pairs: bool) -> Weights:
    around = (LETTERS, LETTERS) if pairs else (LETTERS,)
    return {"width": torch.zeros(WIDEST), "first": torch.zeros(around), "last": torch.zeros(around)}


def potentials(weights: Weights, letters: Tensor) -> Tensor:
    """Log-potentials [b n w 1 1] of the words that end at each position; there is one label."""
    n = letters.shape[1]
    end = torch.arange(n)
    widths = torch.arange(1, WIDEST + 1)
    begin = (end[:, None] + 1 - widths).clamp(min=0)  # [n w]; what starts too early is padding
    first, last = (letters[:, begin],), (letters,)
    if weights["first"].ndim == 2:  # letters at begin + 1 and end - 1 as well
        shifted = torch.nn.functional.pad(letters, (1, 1))
        first = (*first, shifted[:, begin + 2])
        last = (shifted[:, end], *last)
    scores = weights["width"] + weights["first"][first] + weights["last"][last][..., None]
    return scores[..., None, None]


def segmenter(weights: Weights, some: Text) -> SemiMarkov:
    return SemiMarkov(potentials(weights, some.letters), lengths=some.lengths)


def train(
    weights: Weights, data: Text, for_f1: bool, steps: Iterable[int], generator: torch.Generator
) -> Weights:
    weights = {name: w.clone().requires_grad_() for name, w in weights.items()}
    optimiser = torch.optim.Adam(list(weights.values()), lr=0.05 if for_f1 else 0.1)
    for _ in steps:
        some = data[torch.randperm(len(data.letters), generator=generator)[:BATCH]]
        d = segmenter(weights, some)
        if for_f1:
            loss = -10 * expected_f_of_event(d, some.words).mean()
        else:
            loss = -d.log_prob(some.words).mean()
        loss = loss + RIDGE * sum(w.square().sum() for w in weights.values())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return {name: w.detach() for name, w in weights.items()}


def split(line: str, ends: Tensor) -> list[str]:
    """The words of a line, from where they end."""
    places = [i + 1 for i, label in enumerate(ends.tolist()[: len(line)]) if label >= 0]
    return [line[i:j] for i, j in zip([0, *places], places, strict=False)]


def f1(found: Tensor, data: Text) -> float:
    """Mean over the sentences of F1: words with the right start and end."""
    total = 0.0
    for mine, right, n in zip(found, data.words, data.lengths.tolist(), strict=True):
        spans = []
        for ends in (mine, right):
            places = [i for i in range(n) if ends[i] >= 0]
            spans.append(set(zip([-1, *places], places, strict=False)))
        total += 2 * len(spans[0] & spans[1]) / (len(spans[0]) + len(spans[1]))
    return 100 * total / len(found)


def main(arguments: list[str] | None = None) -> None:
    description, _, details = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=description,
        epilog=details.split("\n\n", 1)[1],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--plot", metavar="FILE", type=Path, help="write a picture: .svg or .html")
    parser.add_argument("--pairs", action="store_true", help="a better model: pairs of letters")
    parser.add_argument("--steps", type=int, default=150, help="of each training (150)")
    parser.add_argument("--sentence", type=int, default=0, help="which held-out one to show (0)")
    parser.add_argument("--seed", type=int, default=0, help="of all random choices (0)")
    given = parser.parse_args(arguments)

    generator = torch.Generator().manual_seed(given.seed)
    sentences = [s for s in library.sentences("corpus") if max(map(len, s)) <= WIDEST]
    order = torch.randperm(len(sentences), generator=generator)
    held_out, data = (encoded([sentences[i] for i in part]) for part in (order[:150], order[150:]))
    if not 0 <= given.sentence < 150:
        parser.error("--sentence must be in 0..149")
    if given.plot is not None and not given.plot.parent.is_dir():
        parser.error(f"--plot: there is no folder {given.plot.parent}")

    with Progress(console=Console(stderr=True), transient=True) as progress:
        steps = progress.track(range(given.steps), description="training for likelihood")
        likely = train(start(given.pairs), data, False, steps, generator)
        steps = progress.track(range(given.steps), description="training for expected F1")
        good = train(likely, data, True, steps, generator)

    one = held_out[torch.tensor([given.sentence])]
    line = "".join(one.sentences[0])
    rows, pictures, shown = [], [], []
    for name, weights in [("likelihood", likely), ("expected F1", good)]:
        d = segmenter(weights, held_out)
        rows.append(
            [
                name,
                f"{f1(d.mode, held_out):.1f}",
                f"{f1(d.min_risk(), held_out):.1f}",
                f"{100 * float(expected_f_of_event(d, held_out.words).mean()):.1f}",
                f"{float(d.log_prob(held_out.words).mean()):.2f}",
            ]
        )
        alone = segmenter(weights, one)
        every_segment = {"log_potentials": torch.ones(())}  # counts 1
        found = alone.histogram(every_segment)
        moments = alone.moments(every_segment, 2, kind="cumulants")
        mean, variance = float(moments[1]), float(moments[2])
        label = f"{name}: mean {mean:.2f}, variance {variance:.2f}"
        pictures.append(Columns(label, found.first, found.probabilities[0].tolist(), mean))
        shown += [f"\n{label}; its best: {' '.join(split(line, alone.mode[0]))}"]
        likely_ones = found.values[found.probabilities[0] >= 0.005].tolist()
        shares = [float(found[value]) for value in likely_ones]
        shown += [text.bars([str(value) for value in likely_ones], shares, width=40)]

    print(f"F1 of the words in {len(held_out.letters)} held-out sentences\n")
    headers = ["trained for", "most probable", "minimum risk", "expected", "log-likelihood"]
    print(text.table(rows, headers, "lrrrr"))
    print(
        f"\nHow many words are in {line}? ({len(one.sentences[0])}: {' '.join(one.sentences[0])})"
    )
    print(*shown, sep="\n")
    if given.plot is not None:
        picture = histogram(pictures, across=f"words in {line}", actual=len(one.sentences[0]))
        if given.plot.suffix == ".html":
            table = page.table(rows, headers, "lrrrr")
            sections = [("F1 on held-out sentences", table), ("How many words?", picture)]
            picture = page.html("A segmenter trained for F1", sections)
        given.plot.write_text(picture, encoding="utf-8")
        print(f"\nwritten: {given.plot}")


if __name__ == "__main__":
    main()
