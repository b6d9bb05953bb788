"""log Z of weighted grammars as a torch function, differentiable to any order; single trees.

Forward, first and second derivative run width by width in scaled arithmetic. Third and higher
derivatives use the reference.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from inout.kernels.autograd import differentiable_log_partition
from inout.kernels.pcfg.cpu.kbest import kbest
from inout.kernels.pcfg.cpu.passes import CpuGrammarPasses
from inout.kernels.pcfg.gpu.passes import GpuGrammarPasses
from inout.kernels.pcfg.reference import reference_grammar_log_partition
from inout.kernels.shapes import Lengths, PerElement, Root, Rules, Trees, Words
from inout.kernels.threads import over_batch
from inout.kernels.tiers import choose_tier


def passes_for(
    root: Tensor, rules: Tensor, words: Tensor, lengths: Tensor
) -> CpuGrammarPasses | GpuGrammarPasses:
    """The passes for these potentials."""
    on_cpu = choose_tier(words.device) == "cpu"
    return (CpuGrammarPasses if on_cpu else GpuGrammarPasses)(root, rules, words, lengths)


def log_partition(root: Root, rules: Rules, words: Words, lengths: Lengths) -> PerElement:
    """log Z of each element; bs is 1 or b, s = nt + pt; lengths at least 1.

    O(b (n³ nt² + n² nt³ + n nt s pt)) time; O(b n² nt) memory besides the weights of the rules.
    """
    return differentiable_log_partition(
        passes_for, reference_grammar_log_partition, root, rules, words, lengths=lengths
    )


def span_marginals(
    root: Tensor, rules: Tensor, words: Tensor, lengths: Tensor
) -> Float[Tensor, "b n n nt"]:
    """Posterior probability of every nonterminal over every span."""
    return passes_for(root, rules, words, lengths).span_marginals()


def best_trees(root: Tensor, rules: Tensor, words: Tensor, lengths: Tensor) -> Trees:
    """Symbols of the spans of the best tree, -1 elsewhere (everywhere if there is none)."""
    return passes_for(root, rules, words, lengths).best()


def k_best_trees(
    root: Tensor, rules: Tensor, words: Tensor, lengths: Tensor, k: int
) -> tuple[Int[Tensor, "k b n n"], Float[Tensor, "k b"]]:
    """The k trees with the highest scores, and their scores (-inf if there are fewer)."""
    given = [x.detach().double().cpu().contiguous().numpy() for x in (root, rules, words)]
    sizes = lengths.cpu().contiguous().numpy()
    b, n, _ = words.shape
    events, scores = np.empty((k, b, n, n), np.int64), np.empty((k, b))

    def part(lo: int, hi: int) -> None:
        kbest(*given, sizes, lo, hi, k, events, scores)

    over_batch(part, b, b * n**4)
    device = words.device
    return torch.from_numpy(events).to(device), torch.from_numpy(scores).to(device)


def sample_trees(
    root: Tensor, rules: Tensor, words: Tensor, lengths: Tensor, count: int, seed: int
) -> Int[Tensor, "m b n n"]:
    """`count` independent trees of each element: symbols of spans, -1 elsewhere."""
    return passes_for(root, rules, words, lengths).sample(count, seed)
