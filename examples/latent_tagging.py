"""Tag sequences with hidden kinds of tags: a latent-variable HMM as a latent-variable grammar.

    python examples/latent_tagging.py [--sequences 3000] [--latent 3] [--conll2000] [--seed 0]

A tagged sequence is a right-branching tree (Cohen et al. 2012, section 9). The node N* stands for
a noun and all that follows; N is the tag of its word; the last node stands above its word itself:

    the/D dog/N barks/V   →   (D* (D the) (N* (N dog) (V* barks)))

Rules D* → D N* are then the transitions of a tagger, rules D → the its emissions. With latent
values each tag has several kinds, which nobody has annotated: an HMM whose states are pairs of a
tag and a kind. Spectral learning and EM estimate it from tagged sequences as they estimate
grammars from trees.

Here the sequences are drawn from such an HMM that we know. The table says how many words get the
right tag, each its likeliest given the sentence: by tag bigrams (one kind), by the two estimates,
and by the HMM that the sequences came from. An estimate may give a sentence a negative
probability (p < 0), which does no harm, or none, where bigrams help out (fallbacks).

`--conll2000` finds the chunks of newspaper text from its parts of speech instead, where no true
model is known. The first run also compiles the CPU kernels.
"""

import argparse
import lzma
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from nltk.tree import Tree
from rich.console import Console
from rich.status import Status
from torch import Tensor

from inout import HMM
from inout.grammars.words import Vocabulary
from inout.latent import (
    LPCFG,
    LatentGrammar,
    LatentParser,
    Layout,
    SkeletalTrees,
    Skeleton,
    TrainingSet,
    with_classes,
)
from inout.learning.latent_grammars import fit_latent_em, fit_latent_grammar
from inout.viz.text import table

Tagged = list[tuple[str, str]]  # words with their tags

TAGS, KINDS, WORDS = ("D", "N", "V", "P"), 3, 40
STOP = 0.1  # the probability that a sequence ends, after any word
HELD_OUT = 400


def tree_of(sequence: Tagged) -> Tree:
    """The right-branching tree of a tagged sequence."""
    word, tag = sequence[-1]
    tree = Tree(f"{tag}*", [word])
    for word, tag in reversed(sequence[:-1]):
        tree = Tree(f"{tag}*", [Tree(tag, [word]), tree])
    return tree


def sequence_of(tree: Tree) -> Tagged:
    """The tagged sequence of a right-branching tree."""
    found = []
    while isinstance(tree[0], Tree):
        found.append((tree[0][0], tree[0].label()))
        tree = tree[1]
    return [*found, (tree[0], tree.label().removesuffix("*"))]


@dataclass(frozen=True)
class HiddenKinds:
    """An HMM whose states are pairs of a tag and a kind: t tags of k kinds, w words."""

    initial: Tensor  # [t k]
    transition: Tensor  # [t k t k]
    emission: Tensor  # [t k w]

    @staticmethod
    def random(generator: torch.Generator) -> "HiddenKinds":
        """Kinds of a tag differ much in what follows them, and less in their words."""

        def drawn(*shape: int, power: int, last: int) -> Tensor:
            weights = torch.rand(shape, generator=generator, dtype=torch.float64) ** power
            flat = weights.reshape(*shape[: len(shape) - last], -1)
            return (flat / flat.sum(-1, keepdim=True)).reshape(shape)

        t = len(TAGS)
        return HiddenKinds(
            drawn(t, KINDS, power=1, last=2),
            drawn(t, KINDS, t, KINDS, power=12, last=2),
            drawn(t, KINDS, WORDS, power=4, last=1),
        )

    @cached_property
    def words(self) -> list[str]:
        return [f"w{x}" for x in range(WORDS)]

    @cached_property
    def grammar(self) -> LPCFG:
        """The same model of right-branching trees: the word's node has the kind of the tag's."""
        skeleton = Skeleton.of(
            [(f"{a}*", a, f"{b}*") for a in TAGS for b in TAGS],
            [(f"{a}{star}", word) for a in TAGS for star in ("", "*") for word in self.words],
        )
        layout = Layout(skeleton, KINDS)
        parameters = np.zeros(layout.size)
        names = skeleton.nonterminals
        tag = [TAGS.index(name.removesuffix("*")) for name in names]
        starred = [name.endswith("*") for name in names]
        for a in range(len(names)):
            if starred[a]:
                layout.root(parameters, a)[:] = self.initial[tag[a]]
        for rule, (a, x) in enumerate(skeleton.lexical.tolist()):
            word = self.words.index(skeleton.words[x])
            ends = STOP if starred[a] else 1.0
            layout.lexical(parameters, rule)[:] = ends * self.emission[tag[a], :, word]
        for rule, (a, _, c) in enumerate(skeleton.binary.tolist()):
            block = layout.block(parameters, rule)
            for kind in range(KINDS):
                block[kind, kind] = (1 - STOP) * self.transition[tag[a], kind, tag[c]]
        return LPCFG(layout, parameters)

    def states(self, words: Sequence[str], tags: Sequence[str] | None = None) -> HMM:
        """p(kinds and, unless they are given, tags | words), from the HMM itself.

        Its `log_partition` is that of the words (and tags), without the end of the sequence.
        """
        symbols = torch.tensor([self.words.index(word) for word in words])
        emission = self.emission.flatten(0, 1)[:, symbols].log()  # [s n]: each word a symbol
        if tags is not None:
            of_state = torch.arange(len(TAGS)).repeat_interleave(KINDS)
            wanted = torch.tensor([TAGS.index(tag) for tag in tags])
            emission = emission.masked_fill(of_state[:, None] != wanted, -torch.inf)
        return HMM(
            self.initial.flatten().log(),
            self.transition.flatten(2).flatten(0, 1).log(),
            emission,
            torch.arange(len(words)),
        )


@dataclass(frozen=True)
class Task:
    """Tagged sequences to learn from, and others to be tagged."""

    data: TrainingSet
    held_out: list[Tagged]
    truth: LatentGrammar | None

    @staticmethod
    def drawn(count: int, generator: torch.Generator) -> "Task":
        truth = HiddenKinds.random(generator)
        trees = truth.grammar.sample(count + HELD_OUT, generator)
        vocabulary = Vocabulary(frozenset(truth.words))
        data = TrainingSet(trees.select(np.arange(count)), vocabulary)
        held_out = [sequence_of(trees.tree(x)) for x in range(count, len(trees))]
        # For the coarse pass: bigrams, none of which is impossible.
        coarse = LPCFG(data.skeletal.layout, np.maximum(data.skeletal.parameters, 1e-6))
        return Task(data, held_out, LatentGrammar(truth.grammar, coarse, vocabulary))

    @staticmethod
    def conll2000(count: int, generator: torch.Generator) -> "Task":
        """Parts of speech with tags of chunks (B-NP, I-NP, …, O)."""
        path = Path(os.environ.get("INOUT_DATA", ".")) / "conll2000" / "train.tsv.xz"
        if not path.is_file():
            sys.exit(
                "--conll2000 needs conll2000/train.tsv.xz in the folder that INOUT_DATA names: "
                "lines of word, part of speech and chunk with tabs between, an empty line between "
                "sentences"
            )
        with lzma.open(path, "rt", encoding="utf-8") as file:
            blocks = file.read().strip().split("\n\n")
        lines = [[line.split("\t") for line in block.splitlines()] for block in blocks]
        sequences = [[(pos, chunk) for _, pos, chunk in some] for some in lines if len(some) <= 40]
        order = torch.randperm(len(sequences), generator=generator).tolist()
        sequences = [sequences[x] for x in order[: count + HELD_OUT]]
        replaced, vocabulary = with_classes([tree_of(some) for some in sequences[:-HELD_OUT]])
        return Task(
            TrainingSet(SkeletalTrees.of(replaced), vocabulary), sequences[-HELD_OUT:], None
        )


def accuracy(grammar: LatentGrammar, held_out: list[Tagged]) -> tuple[float, Counter[str]]:
    """The share of words that get the right tag, and by which means sequences got their tags.

    Nodes of a tag are in the tree together, so Goodman's criterion, the sum of the posteriors of
    the nodes, is twice the expected number of right tags.
    """
    parses = LatentParser(grammar).parse_all(
        [[word for word, _ in some] for some in held_out], "goodman"
    )
    right = total = 0
    for parse, sequence in zip(parses, held_out, strict=True):
        found = [] if parse.skeletal_tree is None else sequence_of(parse.skeletal_tree)
        right += sum(one == other for one, other in zip(found, sequence, strict=False))
        total += len(sequence)
    return right / total, Counter(parse.source for parse in parses)


def main(arguments: list[str] | None = None) -> None:
    description, _, details = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=description,
        epilog=details.split("\n\n", 1)[1],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sequences", type=int, default=3000, help="to learn from (3000)")
    parser.add_argument("--latent", type=int, default=KINDS, help="kinds of each tag (3)")
    parser.add_argument("--iterations", type=int, default=20, help="of EM, for each split (20)")
    parser.add_argument("--seed", type=int, default=0, help="of all random choices (0)")
    parser.add_argument("--conll2000", action="store_true", help="newspaper text, from INOUT_DATA")
    given = parser.parse_args(arguments)
    if min(given.sequences, given.latent, given.iterations) < 1:
        parser.error("--sequences, --latent and --iterations must be at least 1")

    generator = torch.Generator().manual_seed(given.seed)
    task = (Task.conll2000 if given.conll2000 else Task.drawn)(given.sequences, generator)
    data = task.data
    ways: dict[str, Callable[[], LatentGrammar]] = {
        "tag bigrams": lambda: data.grammar(data.skeletal),
        "latent, spectral": lambda: fit_latent_grammar(data, given.latent, generator=generator),
        "latent, EM": lambda: data.grammar(
            fit_latent_em(data, given.latent, iterations=given.iterations, generator=generator)
        ),
    }
    if task.truth is not None:
        truth = task.truth
        ways["the true model"] = lambda: truth
    rows = []
    with Status("", console=Console(stderr=True)) as status:
        for name, train in ways.items():
            status.update(f"{name} …")
            start = time.perf_counter()
            grammar = train()
            seconds = time.perf_counter() - start
            share, sources = accuracy(grammar, task.held_out)
            trained = f"{seconds:.1f}" if name.startswith("latent") else ""
            negative = sources["negative"]
            others = sources.total() - sources["latent"] - negative
            rows.append([name, f"{100 * share:.1f}", trained, str(negative), str(others)])

    words = sum(map(len, task.held_out))
    print(f"{len(data.trees)} tagged sequences; {len(task.held_out)} others of {words} words\n")
    print(table(rows, ["model", "% right", "seconds to train", "p < 0", "fallbacks"], "lrrrr"))


if __name__ == "__main__":
    main()
