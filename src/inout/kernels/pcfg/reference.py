"""The inside algorithm of weighted grammars in any semiring; any derivative."""

from __future__ import annotations

from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from inout.kernels.shapes import Lengths, PerElement, Rules, Words
from inout.semirings import Log, Semiring

Elements = TypeVar("Elements")


def reference_grammar_inside(
    semiring: Semiring[Elements],
    root: Elements,
    rules: Elements,
    preterminals: Elements,
    size: tuple[int, int, int, int],
    lengths: Lengths,
) -> Elements:
    """Total weight of the trees of a grammar over each element, [b] elements.

    beta(A, i, j) = sum over B, C of rule(A, B, C) * sum over k of beta(B, i, k) beta(C, k + 1, j).
    `root` [b nt], `rules` [b nt s s] and `preterminals` [b n pt] are lifted and flattened, with
    s = nt + pt symbols, nonterminals first; `size` is (b, n, nt, pt). O(b n² nt s² + b n³ s²).
    """
    b, n, nt, pt = size
    s = nt + pt
    device = lengths.device
    element = torch.arange(b, device=device)
    nonterminal = torch.arange(nt, device=device)
    # chart[width]: [b, count, symbols of that width], which are the preterminals at width 1.
    chart = {1: preterminals}
    first_symbol = {width: nt if width == 1 else 0 for width in range(1, n + 1)}
    sizes = {width: pt if width == 1 else nt for width in range(1, n + 1)}
    total = semiring.zero(b)
    for width in range(2, n + 1):
        count = n - width + 1
        place = (element[:, None] * count + torch.arange(count, device=device)).reshape(-1)
        start, of = place % count, place // count
        products, heads = [], []
        for left in range(1, width):
            right = width - left
            b_symbol = torch.arange(sizes[left], device=device)[:, None]
            c_symbol = torch.arange(sizes[right], device=device)
            l_rows = (of * (n - left + 1) + start)[:, None, None] * sizes[left] + b_symbol
            r_rows = (of * (n - right + 1) + start + left)[:, None, None] * sizes[right] + c_symbol
            pair = (b_symbol + first_symbol[left]) * s + c_symbol + first_symbol[right]
            shape = (len(place), sizes[left], sizes[right])
            products.append(
                semiring.times(
                    semiring.take(chart[left], l_rows.expand(shape).reshape(-1)),
                    semiring.take(chart[right], r_rows.expand(shape).reshape(-1)),
                )
            )
            heads.append((place[:, None, None] * s * s + pair).expand(shape).reshape(-1))
        pairs = semiring.sum(semiring.cat(products), torch.cat(heads), len(place) * s * s)
        cells = (len(place), nt, s * s)
        pair = torch.arange(s * s, device=device)
        pair_rows = (place[:, None, None] * s * s + pair).expand(cells).reshape(-1)
        rule_rows = ((of[:, None] * nt + nonterminal)[..., None] * s * s + pair).reshape(-1)
        head = (place[:, None, None] * nt + nonterminal[:, None]).expand(cells).reshape(-1)
        chart[width] = semiring.sum(
            semiring.times(semiring.take(rules, rule_rows), semiring.take(pairs, pair_rows)),
            head,
            len(place) * nt,
        )
        ends = (lengths == width).nonzero()[:, 0]
        rows = ((ends * count)[:, None] * nt + nonterminal).reshape(-1)
        finished = semiring.times(
            semiring.take(chart[width], rows),
            semiring.take(root, (ends[:, None] * nt + nonterminal).reshape(-1)),
        )
        total = semiring.plus(total, semiring.sum(finished, ends.repeat_interleave(nt), b))
    return total


def reference_grammar_log_partition(
    root: Float[Tensor, "br nt"], rules: Rules, preterminals: Words, lengths: Lengths
) -> PerElement:
    """log Z of a grammar's trees by autograd-recorded torch code: the slow twin of `op.py`.

    Always in float64: large float32 logarithms would lose the differences between trees.
    """
    b, n, pt = preterminals.shape
    nt = root.shape[-1]
    semiring = Log(dtype=torch.float64, device=preterminals.device)
    real = torch.arange(n, device=lengths.device) < lengths[:, None]
    words = preterminals.where(real[..., None], -torch.inf)
    result = reference_grammar_inside(
        semiring,
        semiring.lift(root.expand(b, nt).reshape(-1)),
        semiring.lift(rules.expand(b, *rules.shape[1:]).reshape(-1)),
        semiring.lift(words.reshape(-1)),
        (b, n, nt, pt),
        lengths,
    )
    return result.to(preterminals.dtype)
