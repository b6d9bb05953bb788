"""`LPCFG`: a latent-variable grammar in tensor form."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from inout._core.checks import as_log_weights, expect_shape
from inout._core.errors import ArgumentError
from inout.grammars.tree import Tree
from inout.latent.graphs import chart_of_sentence
from inout.latent.layout import Layout, Vector
from inout.latent.likelihood import TreeLikelihood
from inout.latent.sampling import MAX_NODES, sample_trees
from inout.latent.skeleton import Skeleton
from inout.latent.trees import SkeletalTrees

Trees = SkeletalTrees | Sequence[Tree]


@dataclass(frozen=True, eq=False)
class PartlyParsed:
    """A corpus of trees, and of sentences whose trees are not known, for `inout.em`.

    The trees come first. The sentences must consist of words of the model, classes included; one
    with others has no tree. `allowed` restricts the trees of a sentence to symbols over spans
    [n n+1 a], which saves time; None is for all.

    >>> from nltk.tree import Tree
    >>> trees = SkeletalTrees.of([Tree.fromstring("(S (A x) (S (A y) (A x)))")])
    >>> model = LPCFG(Layout(trees.skeleton, 1), np.array([1, 0, 0.5, 0.5, 0.5, 0.5]))
    >>> corpus = PartlyParsed(trees, ["x y".split(), "y x x".split(), "z".split()])
    >>> model.likelihood(corpus)(model.log_weights).exp()
    tensor([0.0312, 0.1250, 0.0312, 0.0000], dtype=torch.float64)
    """

    trees: Trees
    sentences: Sequence[Sequence[str]]
    allowed: Sequence[NDArray[np.bool_] | None] | None = None

    def __len__(self) -> int:
        return len(self.trees) + len(self.sentences)


@dataclass(frozen=True, eq=False, repr=False)
class LPCFG:
    """Skeletal rules, each with a vector or a block of real numbers (Cohen et al. 2012, fig. 4).

    The parameters need not be probabilities, and may be negative: spectral learning determines
    them only up to a change of basis for each nonterminal (theorem 1). A model of probabilities
    can be trained by `inout.em`, which takes skeletal trees as its corpus.

    >>> from nltk.tree import Tree
    >>> trees = SkeletalTrees.of([Tree.fromstring("(S (A x) (S (A y) (A x)))")])
    >>> model = LPCFG(Layout(trees.skeleton, [1, 2]), np.full(13, 0.5))
    >>> model.tree_probabilities(trees)  # 1/2 for the root and for each S, 1/2 · 2 for each A
    array([0.125])
    """

    layout: Layout
    parameters: Vector  # [p], see `Layout`

    def __post_init__(self) -> None:
        expect_shape("parameters", self.parameters, (self.layout.size,))
        if not np.isfinite(self.parameters).all():
            raise ArgumentError("parameters", "must be finite. Got NaN or infinity")

    @property
    def skeleton(self) -> Skeleton:
        return self.layout.skeleton

    @property
    def sizes(self) -> NDArray[np.int64]:
        return self.layout.sizes

    @cached_property
    def is_nonnegative(self) -> bool:
        return bool((self.parameters >= 0).all())

    def tree_log_probs(
        self, trees: Trees
    ) -> tuple[Float[np.ndarray, " t"], Float[np.ndarray, " t"]]:
        """log |p| of each tree and the sign of p: -1, 0 or 1 (figure 4).

        p is a sum over the latent values of all nodes. O(nodes · m³), in threads.
        """
        passes = TreeLikelihood(self.layout, self._own(trees)).passes(self.parameters)
        logs = np.concatenate([np.empty(0), *(one.log_partitions for one in passes)])
        signs = np.concatenate([np.empty(0), *(np.sign(one.partitions[0]) for one in passes)])
        return logs, signs

    def tree_probabilities(self, trees: Trees) -> Float[np.ndarray, " t"]:
        """p of each tree, which may be negative if a parameter is."""
        logs, signs = self.tree_log_probs(trees)
        return np.asarray(signs * np.exp(logs))

    def sample(
        self, n: int, generator: torch.Generator | None = None, *, max_nodes: int = MAX_NODES
    ) -> SkeletalTrees:
        """n independent trees, each with its probability, without their latent values.

        `generator` makes them reproducible; by default torch's own is used. The parameters must be
        probabilities. All nodes of a level are drawn together, O(log p)
        for each. More than `max_nodes` nodes in all raise ArgumentError: the trees of some
        grammars do not end.
        """
        return sample_trees(
            self.layout, self.parameters, n, generator=generator, max_nodes=max_nodes
        )

    def refuse_negative(self, why: str) -> None:
        """Raise where parameters are negative, as spectral learning makes them."""
        if not self.is_nonnegative:
            raise ArgumentError("model", f"must have no negative parameters {why}. Got some")

    @property
    def log_weights(self) -> Float[Tensor, " p"]:
        """The logs of all parameters, -inf for zero; a negative one raises ArgumentError."""
        if not self.is_nonnegative:
            place = int(np.flatnonzero(self.parameters < 0)[0])
            raise ArgumentError(
                "parameters",
                "must not be negative to be trained or to have logs. "
                f"Got {self.parameters[place]} at {place} (`inout.latent.clustered_model` starts "
                "EM from a spectral solution)",
            )
        zero = np.full(self.layout.size, -np.inf)
        return torch.from_numpy(np.log(self.parameters, out=zero, where=self.parameters > 0))

    @property
    def distributions(self) -> NDArray[np.int64]:
        """The distribution [p] that each parameter belongs to, see `Layout.distributions`."""
        return self.layout.distributions

    def with_log_weights(
        self, log_weights: Tensor | NDArray[np.float64] | Sequence[float]
    ) -> LPCFG:
        """A model of the same layout with other parameters [p]; a graph is cut off."""
        checked = as_log_weights("log_weights", log_weights, self.layout.size)
        return LPCFG(self.layout, np.exp(checked.detach().cpu().double().numpy()))

    def likelihood(self, corpus: Trees | PartlyParsed) -> TreeLikelihood:
        """A function of log-weights [p] that gives the log-probability of each tree [t].

        After those of trees come those of sentences, sums over their trees.
        """
        if not isinstance(corpus, PartlyParsed):
            return TreeLikelihood(self.layout, self._own(corpus))
        numbers = self.skeleton.word_numbers
        given = corpus.allowed or [None] * len(corpus.sentences)
        charts = [
            chart_of_sentence(self.layout, [numbers.get(x, -1) for x in words], allowed).graph
            for words, allowed in zip(corpus.sentences, given, strict=True)
        ]
        return TreeLikelihood(self.layout, self._own(corpus.trees), charts)

    def lengths(self, corpus: Trees | PartlyParsed) -> NDArray[np.int64]:
        if isinstance(corpus, PartlyParsed):
            words = np.array([len(words) for words in corpus.sentences], np.int64)
            return np.concatenate([self.lengths(corpus.trees), words])
        # A binary tree of w words has 2w - 1 nodes.
        return (np.diff(self._own(corpus).offsets) + 1) // 2

    def fingerprint(self) -> str:
        """A digest of all rules and sizes, which with the parameters determine the model."""
        skeleton = self.skeleton
        sha = hashlib.sha256(repr((skeleton.nonterminals, skeleton.words)).encode())
        for array in (skeleton.binary, skeleton.lexical, self.sizes):
            sha.update(f"{array.dtype} {array.shape}".encode())
            sha.update(np.ascontiguousarray(array).tobytes())
        return f"LPCFG {sha.hexdigest()}"

    def _own(self, trees: Trees) -> SkeletalTrees:
        """The trees in arrays, whose rules are numbered as those of this model."""
        if not isinstance(trees, SkeletalTrees):
            return SkeletalTrees.of(trees, self.skeleton)
        if not trees.skeleton.same_as(self.skeleton):
            given = "others (`SkeletalTrees.of(trees, model.skeleton)` makes them so)"
            raise ArgumentError("trees", f"must be over the skeleton of the model. Got {given}")
        return trees

    def describe(self) -> str:
        values = int(self.sizes.max(initial=1))
        return f"{self.skeleton.describe()}, {values} latent value{'' if values == 1 else 's'}"

    def __repr__(self) -> str:
        return f"LPCFG({self.describe()})"
