"""Train a tagger on ten labelled sentences and many without labels.

    python examples/semi_supervised_tagging.py [--labelled 10] [--conll2000] [--seed 0]

A conditional random field learns parts of speech in four ways:

- supervised: the log-likelihood of the labelled sentences;
- with the entropy of the unlabelled sentences as a penalty: be sure of your labels
  (Jiao et al. 2006);
- with generalised expectation criteria: 30 frequent words should have, on average over the
  unlabelled sentences, the tags that a dictionary says (Mann & McCallum 2008);
- with both.

The text is drawn from the grammar of English that comes with inout, with its many kinds of verbs
taken together. `--conll2000` reads newspaper text instead. Everything is done for several draws of
the sentences, since much depends on which ten were labelled. The first run also compiles the CPU
kernels.
"""

import argparse
import lzma
import os
import statistics
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from inout import LinearChain
from inout.grammars import library
from inout.grammars.sampling import sample_trees
from inout.moments import expectation_criterion
from inout.viz.text import table

Sentence = list[tuple[str, str]]  # words with their tags
Weights = tuple[Tensor, Tensor]  # of features [f s] and of pairs of tags [s s]

HELD_OUT, LEXICON, MOST_WORDS = 300, 2000, 30
RIDGE = 1e-3
BATCH = 100  # unlabelled sentences at a time


def english(count: int, generator: torch.Generator) -> list[Sentence]:
    """Sentences drawn from the grammar; a word's tag is what stands above it in the tree."""
    found: list[Sentence] = []
    while len(found) < count:
        for tree in sample_trees(library.load("english"), count, generator=generator):
            above = [tree[place[:-1]].label() for place in tree.treepositions("leaves")]
            tags = [tag[0] if tag[0] in "VB" else tag for tag in above]
            if len(tags) <= 20:
                found.append(list(zip(tree.leaves(), tags, strict=True)))
    return found[:count]


def conll2000(count: int, generator: torch.Generator) -> list[Sentence]:
    """Sentences of the shared task of CoNLL-2000, newspaper text, in random order."""
    path = Path(os.environ.get("INOUT_DATA", ".")) / "conll2000" / "train.tsv.xz"
    if not path.is_file():
        sys.exit(
            "--conll2000 needs conll2000/train.tsv.xz in the folder that INOUT_DATA names: lines "
            "of word, part of speech and chunk with tabs between, an empty line between sentences"
        )
    with lzma.open(path, "rt", encoding="utf-8") as file:
        blocks = file.read().strip().split("\n\n")
    lines = [[line.split("\t") for line in block.splitlines()] for block in blocks]
    sentences = [[(word, tag) for word, tag, _ in some] for some in lines if len(some) <= 40]
    order = torch.randperm(len(sentences), generator=generator).tolist()
    return [sentences[i] for i in order[:count]]


def features(word: str) -> list[str]:
    kind = f"{word[0].isupper()} {any(letter.isdigit() for letter in word)}"
    return [word, f"-{word[-3:]}", f"-{word[-2:]}", kind]


@dataclass
class Batch:
    """Sentences as tensors: features [b n 4], tags [b n], lengths [b]."""

    features: Tensor
    tags: Tensor
    lengths: Tensor

    def __getitem__(self, rows: Tensor) -> "Batch":
        return Batch(self.features[rows], self.tags[rows], self.lengths[rows])

    @property
    def tokens(self) -> Tensor:
        return self.lengths.sum()


class Task:
    """One draw of the sentences, and the four ways to learn from them."""

    def __init__(self, sentences: list[Sentence], labelled: int, unlabelled: int) -> None:
        bare = sentences[labelled : labelled + unlabelled]
        rest = sentences[labelled + unlabelled :]
        self.tags = sorted({tag for sentence in sentences for _, tag in sentence})
        self.numbers: dict[str, int] = {}  # of features; 0 stands for those never seen
        for sentence in sentences[: labelled + unlabelled]:
            for word, _ in sentence:
                for feature in features(word):
                    self.numbers.setdefault(feature, 1 + len(self.numbers))
        self.labelled = self.encoded(sentences[:labelled])
        self.unlabelled = self.encoded(bare)
        self.held_out = self.encoded(rest[:HELD_OUT])
        frequent = Counter(word for sentence in bare for word, _ in sentence)
        self.words = [word for word, _ in frequent.most_common(MOST_WORDS)]
        self.targets = self.dictionary(rest[HELD_OUT:])
        self.known = torch.tensor([self.numbers[word] for word in self.words])

    def encoded(self, sentences: list[Sentence]) -> Batch:
        shape = len(sentences), max(map(len, sentences))
        batch = Batch(
            torch.zeros(*shape, 4, dtype=torch.long),
            torch.zeros(shape, dtype=torch.long),
            torch.tensor([len(sentence) for sentence in sentences]),
        )
        for i, sentence in enumerate(sentences):
            numbers = [[self.numbers.get(f, 0) for f in features(word)] for word, _ in sentence]
            batch.features[i, : len(sentence)] = torch.tensor(numbers)
            tags = [self.tags.index(tag) for _, tag in sentence]
            batch.tags[i, : len(sentence)] = torch.tensor(tags)
        return batch

    def dictionary(self, sentences: list[Sentence]) -> Tensor:
        """Tags of the frequent words [m s]: shares counted in text that nothing else uses."""
        counts = torch.full((len(self.words), len(self.tags)), 1e-3)
        for sentence in sentences:
            for word, tag in sentence:
                if word in self.words:
                    counts[self.words.index(word), self.tags.index(tag)] += 1
        return counts / counts.sum(1, keepdim=True)

    def model(self, weights: Weights, batch: Batch) -> LinearChain:
        emission, transition = weights
        flat = torch.nn.functional.embedding_bag(
            batch.features.flatten(0, 1), emission, mode="sum", padding_idx=0
        )
        return LinearChain(flat.unflatten(0, batch.tags.shape), transition, lengths=batch.lengths)

    def loss(self, weights: Weights, some: Batch, entropy: float, criteria: float) -> Tensor:
        seen = self.model(weights, self.labelled)
        loss = -seen.log_prob(self.labelled.tags).sum() / self.labelled.tokens
        loss = loss + RIDGE * sum(w.square().sum() for w in weights)
        unseen = self.model(weights, some)
        if entropy:
            loss = loss + entropy * unseen.entropy().sum() / some.tokens
        if criteria:
            here = some.features[..., 0] == self.known[:, None, None]  # [m b n]
            loss = loss + criteria / MOST_WORDS * expectation_criterion(unseen, here, self.targets)
        return loss

    def train(
        self,
        start: Weights,
        steps: int,
        generator: torch.Generator,
        entropy: float = 0.0,
        criteria: float = 0.0,
    ) -> Weights:
        weights = tuple(w.clone().requires_grad_() for w in start)
        optimiser = torch.optim.Adam(weights, lr=0.1)
        for _ in range(steps):
            rows = torch.randperm(len(self.unlabelled.tags), generator=generator)[:BATCH]
            optimiser.zero_grad()
            self.loss(weights, self.unlabelled[rows], entropy, criteria).backward()
            optimiser.step()
        return tuple(w.detach() for w in weights)

    def accuracy(self, weights: Weights) -> float:
        """Share of the held-out words that get the right tag, each word's likeliest."""
        found = self.model(weights, self.held_out).min_risk()
        n = found.shape[-1]
        real = torch.arange(n) < self.held_out.lengths[:, None]
        return float((found == self.held_out.tags)[real].double().mean())

    def accuracies(self, given: argparse.Namespace, generator: torch.Generator) -> list[float]:
        tags = len(self.tags)
        zero = torch.zeros(1 + len(self.numbers), tags), torch.zeros(tags, tags)
        plain = self.train(zero, given.steps, generator)
        sure = self.train(plain, given.steps, generator, entropy=given.entropy)
        told = self.train(plain, given.steps, generator, criteria=given.criteria)
        both = self.train(told, given.steps, generator, given.entropy, given.criteria)
        return [100 * self.accuracy(weights) for weights in (plain, sure, told, both)]


def main(arguments: list[str] | None = None) -> None:
    description, _, details = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=description,
        epilog=details.split("\n\n", 1)[1],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--labelled", type=int, default=10, help="labelled sentences (10)")
    parser.add_argument("--unlabelled", type=int, default=500, help="sentences without (500)")
    parser.add_argument("--entropy", type=float, default=0.1, help="weight of the entropy (0.1)")
    parser.add_argument("--criteria", type=float, default=3.0, help="weight of the criteria (3)")
    parser.add_argument("--steps", type=int, default=100, help="of each training (100)")
    parser.add_argument("--draws", type=int, default=5, help="how often all is repeated (5)")
    parser.add_argument("--seed", type=int, default=0, help="of all random choices (0)")
    parser.add_argument("--conll2000", action="store_true", help="newspaper text, from INOUT_DATA")
    given = parser.parse_args(arguments)
    if min(given.labelled, given.unlabelled, given.draws) < 1:
        parser.error("--labelled, --unlabelled and --draws must be at least 1")

    generator = torch.Generator().manual_seed(given.seed)
    source = conll2000 if given.conll2000 else english
    count = given.labelled + given.unlabelled + HELD_OUT + LEXICON
    rows = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for _ in progress.track(range(given.draws), description="training four taggers a draw"):
            task = Task(source(count, generator), given.labelled, given.unlabelled)
            rows.append(task.accuracies(given, generator))

    print(
        f"{given.labelled} labelled sentences, {given.unlabelled} without labels, "
        f"{len(task.tags)} tags; {given.draws} draws\n"
    )
    names = ["supervised", "+ entropy", "+ expectation criteria", "+ both"]
    means = [statistics.fmean(found) for found in zip(*rows, strict=True)]
    lines = [[names[0], f"{means[0]:.1f}", "", ""]]
    for i in range(1, len(names)):
        better = sum(row[i] > row[0] for row in rows)
        gain = f"{means[i] - means[0]:+.1f}"
        lines.append([names[i], f"{means[i]:.1f}", gain, f"{better} of {len(rows)}"])
    print(table(lines, ["trained", "% right", "gain", "draws better"], "lrrr"))
    if means[1] <= means[0]:
        print("\nEntropy alone made the taggers surer of what they believed, mistakes included.")
    if means[2] > means[0] and means[3] > means[2]:
        print("Once the criteria had put some words right, it helped a little.")
    some = [
        f"{word} {task.tags[int(target.argmax())]} {float(target.max()):.2f}"
        for word, target in zip(task.words[:8], task.targets, strict=False)
    ]
    print(f"\nThe dictionary: {', '.join(some)}, …")


if __name__ == "__main__":
    main()
