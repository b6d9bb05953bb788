"""log Z of factored chains and grammars as torch functions; best and random events."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout.kernels.autograd import differentiable_log_partition, gradient_wanted
from inout.kernels.limits import LOWRANK_BLOCK
from inout.kernels.lowrank.cpu import decode
from inout.kernels.lowrank.cpu.chain_passes import CpuFactoredChainPasses
from inout.kernels.lowrank.cpu.grammar_passes import CpuFactoredGrammarPasses
from inout.kernels.lowrank.gpu.chain_passes import GpuFactoredChainPasses
from inout.kernels.lowrank.gpu.grammar_passes import GpuFactoredGrammarPasses
from inout.kernels.lowrank.reference import (
    Heads,
    Left,
    Right,
    Source,
    Target,
    reference_factored_chain,
    reference_factored_grammar,
)
from inout.kernels.lowrank.tables import RuleBlocks, TransitionBlocks
from inout.kernels.math.underflow import Array
from inout.kernels.shapes import Emissions, Labels, Lengths, PerElement, Root, Trees, Words
from inout.kernels.threads import over_batch
from inout.kernels.tiers import choose_tier

ChainPasses = CpuFactoredChainPasses | GpuFactoredChainPasses


def grammar_log_partition(
    root: Root, head: Heads, left: Left, right: Right, words: Words, lengths: Lengths
) -> PerElement:
    """log Z of each element; bh, bl and br are 1 or b, s = nt + pt; lengths at least 1.

    A head of size 0 means that the latent value of a rule is its head.
    O(b (n³ r + n² s r)) time, O(b n² (nt + r)) memory besides the factors.
    """

    def make(*tensors: Tensor) -> CpuFactoredGrammarPasses | GpuFactoredGrammarPasses:
        return _grammar_passes(*tensors)

    return differentiable_log_partition(
        make, reference_factored_grammar, root, head, left, right, words, lengths=lengths
    )


def _grammar_passes(*given: Tensor) -> CpuFactoredGrammarPasses | GpuFactoredGrammarPasses:
    cpu = choose_tier(given[-1].device) == "cpu"
    return CpuFactoredGrammarPasses(*given) if cpu else GpuFactoredGrammarPasses(*given)


def span_marginals(*given: Tensor) -> Float[Tensor, "b n n nt"]:
    """Posterior probability of every nonterminal over every span, in float64."""
    return _grammar_passes(*given).span_marginals()


def sample_trees(*given: Tensor, count: int, seed: int) -> Int[Tensor, "m b n n"]:
    """`count` independent trees of each element: symbols of spans, -1 elsewhere."""
    return _grammar_passes(*given).sample(count, seed)


def best_trees(
    root: Tensor, head: Tensor, left: Tensor, right: Tensor, words: Tensor, lengths: Tensor
) -> Trees:
    """Symbols of the spans of the best tree, -1 elsewhere (everywhere if there is none).

    The weights of rules, sums over the latent value, are made block by block, once if they fit in
    one block and for each width otherwise: O(n³ nt² + n² nt s²) time for an element, and
    O(nt s² r) for each time that they are made; O(b n (s² + n nt)) memory besides a block.
    """
    blocks = RuleBlocks(*(x.detach().cpu() for x in (head, left, right)))
    tops, leaves = (x.detach().double().cpu().contiguous().numpy() for x in (root, words))
    sizes = lengths.cpu().contiguous().numpy()
    (b, n, _), s = words.shape, left.shape[-1]
    events = np.empty((b, n, n), np.int64)
    step = b if blocks.own else max(LOWRANK_BLOCK // (n * s * s), 1)
    for lo in range(0, b, step):
        own = slice(lo, lo + step)
        _best_trees(blocks, tops[own], leaves[own], sizes[own], events[own])
    return torch.from_numpy(events).to(root.device)


def _best_trees(
    blocks: RuleBlocks, root: Array, words: Array, lengths: Array, events: Array
) -> None:
    """Fills events [b n n], with the pairs of children of all spans of one width in memory."""
    (b, n, _), nt, s = words.shape, blocks.nt, blocks.size
    scores, places = np.full((b, n, n, nt), -np.inf), np.full((b, n, n, nt), -1)
    pairs = np.empty((b, n, s, s))
    for width in range(2, n + 1):
        meet = partial(decode.best_pairs, scores, words, lengths, width, pairs)
        over_batch(meet, b, b * n * s * s * width)
        for first, rules in blocks:
            block = rules.numpy()
            join = partial(decode.best_heads, block, first, pairs, lengths, width, scores, places)
            over_batch(join, b, b * n * block.shape[1] * s * s)
    build = partial(decode.best_trees, root, words, lengths, scores, places, s, events)
    over_batch(build, b, b * n * n)


def chain_log_partition(
    emissions: Emissions, source: Source, target: Target, lengths: Lengths
) -> PerElement:
    """log Z of each chain, 0 for the empty chain; O(b n s r) time, O(b n (s + r)) memory."""
    keep = gradient_wanted(emissions, source, target)

    def make(*tensors: Tensor) -> ChainPasses:
        return _chain_passes(*tensors, keep=keep)

    return differentiable_log_partition(
        make, reference_factored_chain, emissions, source, target, lengths=lengths
    )


def _chain_passes(*given: Tensor, keep: bool = False) -> ChainPasses:
    if choose_tier(given[-1].device) == "cpu":
        return CpuFactoredChainPasses(*given)
    return GpuFactoredChainPasses(*given, keep=keep)


def sample_labels(*given: Tensor, count: int, seed: int) -> Int[Tensor, "m b n"]:
    """`count` independent labellings of each chain; -1 in all places where none is possible."""
    return _chain_passes(*given).sample(count, seed)


def best_labels(emissions: Tensor, source: Tensor, target: Tensor, lengths: Tensor) -> Labels:
    """The labels with the highest score; ties go to smaller labels, the last position first.

    Transitions, sums over the latent value, are made block by block, once if they fit in one and
    all positions share them, and at each step otherwise: O(b n s²) time and O(s² r) for each time
    that they are made; O(b n s) memory besides a block.
    """
    blocks = TransitionBlocks(*(x.detach().cpu() for x in (source, target)))
    sizes = lengths.cpu().contiguous().numpy()
    b, n, s = emissions.shape
    real = (np.arange(n) < sizes[:, None])[..., None]
    nodes = np.where(real, emissions.detach().double().cpu().numpy(), 0.0)
    scores, pointers = np.full((b, n, s), -np.inf), np.zeros((b, n, s), np.int32)
    scores[:, :1] = nodes[:, :1]
    for t in range(1, n):
        for first, block in blocks.at(t):
            rows = block.numpy()
            step = partial(decode.best_step, rows, first, sizes, t, scores, pointers)
            over_batch(step, b, b * rows.shape[1] * s)
        scores[:, t] += nodes[:, t]
    labels = np.empty((b, n), np.int64)
    decode.best_labels(scores, pointers, sizes, labels, 0, b)
    return torch.from_numpy(labels).to(emissions.device)
