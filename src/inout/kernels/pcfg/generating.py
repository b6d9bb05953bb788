"""Generating functions of additive functions of a grammar's trees, over any lanes, in torch."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Inexact
from torch import Tensor

from inout.kernels.limits import GENERATING_STEADY, GENERATING_TINY
from inout.kernels.pcfg import op
from inout.kernels.pcfg.generating_logspace import log_space_generating_function
from inout.kernels.pcfg.generating_values import ValuedGrammar, relative
from inout.kernels.shapes import Generated, Lengths, Root, Rules, Words
from inout.series.lanes import Lanes, Truncated

Potentials = tuple[Root, Rules, Words]
Values = tuple[
    Inexact[Tensor, "k b nt"],
    Inexact[Tensor, "k bv nt s s"] | None,  # if rules have values
    Inexact[Tensor, "k b n pt"],
]


def generating_function(
    lanes: Lanes, potentials: Potentials, lengths: Lengths, values: Values, shift: float = 0.0
) -> Generated:
    """E[exp(z · (F − centres))] of each element, and the centres, which are about E[F].

    Rules and their values are shared by all (1) or not (b). All trees of an element have as many
    rules and the same words, so the values of each word are taken less their mean, and those of
    rules less the mean of all; `shift` moves these means. Elements without a tree have lanes 0.
    Padding may be anything. O(b (n³ nt² + n² nt³ + n nt s pt) l), or l² for power series; rules
    without values cost plain matrix products.
    """
    (root, rules, words), (root_values, rule_values, word_values) = potentials, values
    n = words.shape[1]
    is_complex = any(v is not None and v.is_complex() for v in values)
    kind = torch.complex128 if is_complex else torch.float64
    real = (torch.arange(n, device=lengths.device) < lengths[:, None])[..., None]
    root_values, word_values = root_values.to(kind), word_values.to(kind)
    if rule_values is not None:
        sets = max(len(rules), rule_values.shape[1])
        rules = rules.expand(sets, -1, -1, -1)
        rule_values = rule_values.expand(-1, sets, -1, -1, -1).to(kind)
    grammar = ValuedGrammar(
        relative(root.double(), (1,)),
        relative(rules.double(), (1, 2, 3)),
        relative(words.double().where(real, 0.0), (2,)),
        root_values,
        rule_values,
        word_values.where(real, 0.0),
    )
    if n < 2:  # no trees
        x = 0 * grammar.root_lanes(lanes).sum(-1)
        return x, torch.zeros_like(root_values[..., 0])
    grammar, centres, squares = _centred(grammar, lengths, shift)
    x, more = _either_way(lanes, grammar, lengths, squares, shift)
    return x, centres + more


def _centred(
    grammar: ValuedGrammar, lengths: Lengths, shift: float
) -> tuple[ValuedGrammar, Inexact[Tensor, "k b"], Float[Tensor, "k b"]]:
    """The grammar with small values, what each element's F lost, and E[sum of squared values].

    The squares are of rules alone, and about right: what rules all share is averaged over elements.
    What is never used has value 0: it must not be far from the rest, where exponentials overflow.
    """
    with torch.no_grad():
        some = lengths.clamp(min=1)
        passes = op.passes_for(grammar.root, grammar.rules, grammar.words, some)
        root, rules, words = passes.gradients(torch.ones_like(some, dtype=torch.float64))
        place = torch.arange(words.shape[1], device=lengths.device)
        of_root = (root * grammar.root_values).sum(-1) + shift * 0.7
        of_words = (words * grammar.word_values).sum(-1) + shift * torch.cos(1 + 7.0 * place)
        total = of_root + of_words.where(place < lengths[:, None], 0.0).sum(-1)
        squares = torch.zeros_like(total.real)
    given = grammar.rule_values
    if given is not None:
        with torch.no_grad():
            counts = (lengths - 1).clamp(min=0).double()
            uses = counts if len(rules) > 1 else counts.sum(0, keepdim=True)
            rules = rules / uses.clamp(min=1)[:, None, None, None]
            mean = (rules * given).sum((2, 3, 4))
            squares = counts * (rules * (given - mean[..., None, None, None]).abs() ** 2).sum(
                (2, 3, 4)
            )
            mean = mean + shift * 0.6
            total = total + counts * mean
        given = torch.where(rules > 0, given - mean[..., None, None, None], 0.0)
    return (
        replace(
            grammar,
            root_values=torch.where(root > 0, grammar.root_values - of_root[..., None], 0.0),
            rule_values=given,
            word_values=torch.where(words > 0, grammar.word_values - of_words[..., None], 0.0),
        ),
        total,
        squares,
    )


def _either_way(
    lanes: Lanes,
    grammar: ValuedGrammar,
    lengths: Lengths,
    squares: Float[Tensor, "k b"],
    shift: float,
) -> Generated:
    """In scaled arithmetic the elements that fit it, the others in log space; and new centres."""
    with torch.no_grad():
        fits = _in_range(grammar, lengths) & _varies(grammar, lengths, squares)
    zero = torch.zeros_like(grammar.root_values[..., 0])
    if bool(fits.all()):
        return _scaled(lanes, grammar, lengths), zero
    good, bad = fits.nonzero()[:, 0], (~fits).nonzero()[:, 0]
    x, centres = log_space_generating_function(lanes, grammar.of(bad), lengths[bad], shift)
    if not len(good):
        return x, centres
    x = torch.cat([_scaled(lanes, grammar.of(good), lengths[good]), x], 1)
    return x[:, torch.cat([good, bad]).argsort()], zero.index_copy(1, bad, centres)


def _scaled(lanes: Lanes, grammar: ValuedGrammar, lengths: Lengths) -> Inexact[Tensor, "l b"]:
    """E[exp(z · F)] of each element; 0 where there is no tree."""
    top = _Chart(lanes, grammar).at_top(lengths)
    x = lanes.times(grammar.root_lanes(lanes), top).sum(-1)
    total = x[:1].detach()
    return x / torch.where(total == 0, 1.0, total)


def _in_range(grammar: ValuedGrammar, lengths: Lengths) -> Bool[Tensor, " b"]:
    """Which elements have no possible symbol over a span that is far below the best one."""
    number = Truncated((0,))
    plain, possible = grammar.without_values(), grammar.possible()
    chart = _Chart(number, plain)
    low = chart.below(GENERATING_TINY, lengths)
    low.append((plain.root.exp() * chart.at_top(lengths)[0]).sum(-1) < GENERATING_TINY)
    result = torch.ones_like(lengths, dtype=torch.bool)
    if not any(bool(x.any()) for x in low):
        return result
    other = _Chart(number, possible, counting=False)
    some = [x[0] > 0 for x in other.lanes[1:]]
    some.append((possible.root.exp() * other.at_top(lengths)[0]).sum(-1) > 0)
    for x, y in zip(low, some, strict=True):
        result &= ~(x & y).reshape(len(result), -1).any(1)
    return result


def _varies(
    grammar: ValuedGrammar, lengths: Lengths, squares: Float[Tensor, "k b"]
) -> Bool[Tensor, " b"]:
    """In which elements the functions vary as sums of so many values should.

    If they do not, the values of rules cancel each other in all likely trees, and then digits
    are lost here, where rules have one mean.
    """
    result = torch.ones_like(lengths, dtype=torch.bool)
    if grammar.rule_values is None:
        return result
    for k, expected in enumerate(squares):
        x = _scaled(Truncated((2,)), grammar.only(k), lengths)
        variance = (2 * x[2] - x[1] ** 2).abs()
        # Not `<`: NaN must not pass.
        result &= (variance >= GENERATING_STEADY * expected) | (x[0] == 0)
    return result


class _Chart:
    """By width: `lanes` [l b count symbols], relative to the exponential of `logs` [b count].

    The value of a span's best symbol is 1. A word on either side of a split is met through
    matrices made once for each position. Without `counting`, all values are 1 or 0: possible or
    not.
    """

    def __init__(self, lanes: Lanes, grammar: ValuedGrammar, counting: bool = True) -> None:
        self.algebra, self.counting = lanes, counting
        words = grammar.word_lanes(lanes)
        nt, n = grammar.num_nonterminals, words.shape[2]
        self.nt = nt
        rules = grammar.rules.exp()
        if grammar.rule_values is not None:
            rules = rules * lanes.exponential(grammar.rule_values)
        last = rules.movedim(-3, -1)  # [.. m B C A]
        self.both = last[..., :nt, :nt, :].flatten(-3, -2)
        s = rules.shape[-1]
        left = rules[..., nt:, :].movedim(-2, -3).flatten(-2)
        right = rules[..., :nt, nt:].movedim(-1, -3).flatten(-2)
        self.lefts = self._meet(words, left).reshape(*words.shape[:-1], nt, s)  # [l b n A C]
        self.rights = self._meet(words, right).reshape(*words.shape[:-1], nt, nt)  # [l b n A B]
        self.lanes = [words]
        self.logs = [words[0].detach().real.amax(-1).log().clamp(max=0.0)]
        for width in range(2, n + 1):
            self._add(width)

    def _meet(
        self, x: Inexact[Tensor, "l b n j"], rules: Inexact[Tensor, "*l m j i"]
    ) -> Inexact[Tensor, "l b n i"]:
        """Sums over j of x with the weights of rules, which need not have lanes."""
        rows = x.reshape(len(x), rules.shape[-3], -1, x.shape[-1])
        if rules.ndim == 4:
            result = self.algebra.matmul(rows, rules)
        elif rows.is_complex():
            result = torch.complex(rows.real @ rules, rows.imag @ rules)
        else:
            result = rows @ rules
        return result.reshape(*x.shape[:-1], -1)

    def _add(self, width: int) -> None:
        """The spans of the next width."""
        matmul, nt = self.algebra.matmul, self.nt
        count = self.logs[0].shape[1] - width + 1
        ends = slice(width - 1, None)
        if width == 2:
            total = matmul(self.lefts[:, :, :count, :, nt:], self.lanes[0][:, :, 1:, :, None])
            shift = self.logs[0][:, :-1] + self.logs[0][:, 1:]
            total = total[..., 0]
        else:
            factors, shift = self._factors(width, count)
            below = self.lanes[width - 2]
            after = below[:, :, 1:] * factors[..., 0, None]
            before = below[:, :, :-1] * factors[..., -1, None]
            total = (
                matmul(self.lefts[:, :, :count, :, :nt], after[..., None])
                + matmul(self.rights[:, :, ends], before[..., None])
            )[..., 0]
        if width > 3:
            inner = range(2, width - 1)
            left = torch.stack([self.lanes[w - 1][:, :, :count] for w in inner], -1)
            right = torch.stack([self.lanes[width - w - 1][:, :, w : w + count] for w in inner], 3)
            pairs = matmul(left * factors[..., None, 1:-1], right)
            total = total + self._meet(pairs.flatten(3), self.both)
        self._settle(total, shift)

    def _factors(self, width: int, count: int) -> tuple[Tensor, Tensor]:
        """Scale of each split [b count splits] relative to the largest, and its logarithm."""
        logs = [
            self.logs[w - 1][:, :count] + self.logs[width - w - 1][:, w : w + count]
            for w in range(1, width)
        ]
        splits = torch.stack(logs, -1)
        shift = splits.amax(-1)
        return (splits - torch.where(shift == -torch.inf, 0.0, shift)[..., None]).exp(), shift

    def _settle(self, total: Inexact[Tensor, "l b count nt"], shift: Tensor) -> None:
        """Appends totals that are relative to exp(shift) [b count]."""
        top = total[0].detach().real.amax(-1)
        top = torch.where(top < GENERATING_TINY, 0.0, top)
        if not self.counting:
            total = (total > 0).to(total.dtype)
            shift, top = torch.zeros_like(shift), (top > 0).to(top.dtype)
        dead = top == 0
        scale = torch.where(dead, 0.0, 1 / torch.where(dead, 1.0, top))
        self.lanes.append(total * scale[..., None])
        self.logs.append(shift + top.log())

    def below(self, limit: float, lengths: Tensor) -> list[Bool[Tensor, "b count nt"]]:
        """Which values of spans of two words or more within the elements are below a limit."""
        found = []
        for width, x in enumerate(self.lanes[1:], 2):
            starts = torch.arange(x.shape[2], device=x.device)
            inside = starts + width <= lengths[:, None]
            found.append((x[0] < limit) & inside[..., None])
        return found

    def at_top(self, lengths: Lengths) -> Inexact[Tensor, "l b nt"]:
        """The spans over whole elements, 0 for elements of one word or none."""
        element = torch.arange(len(lengths), device=lengths.device)
        tops = torch.stack([x[:, :, 0] for x in self.lanes[1:]])
        x = tops[(lengths - 2).clamp(min=0), :, element].movedim(1, 0)
        return x.where(lengths[:, None] > 1, 0.0)
