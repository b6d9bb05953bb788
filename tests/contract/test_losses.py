"""Losses of torch and torchaudio, and those of time series: against torch and textbook loops."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from torch.autograd import grad, gradcheck

from inout import ArgumentError
from inout.nn import CTCHead, RNNTLoss, SoftDTW
from tests.seeds import seeds
from tests.support import assert_close

F64 = torch.float64
REDUCTIONS = ("none", "mean", "sum")


def log_add(values: list[float]) -> float:
    top = max(values)
    return top if top == -math.inf else top + math.log(sum(math.exp(x - top) for x in values))


# ------------------------------------------------------------------------------------- CTC


def frames(seed, t=7, b=4, v=5):
    g = torch.Generator().manual_seed(seed)
    scores = torch.randn(t, b, v, generator=g, dtype=F64)
    targets = torch.randint(1, v, (b, 3), generator=g)
    targets[0] = targets[0, :1]  # repeated: needs blanks
    return scores, targets, torch.tensor([7, 5, 6, 2]), torch.tensor([3, 0, 2, 1])


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("blank", [0, 4])
@pytest.mark.parametrize("joined", [False, True])
def test_ctc_is_that_of_torch(reduction, blank, joined):
    for seed in seeds(4, few=1):
        scores, targets, lengths, sizes = frames(seed)
        targets = targets if blank == 0 else targets - 1
        if joined:
            targets = torch.cat([row[:n] for row, n in zip(targets, sizes.tolist(), strict=True)])
        results = []
        for layer in (torch.nn.CTCLoss(blank, reduction), CTCHead(blank, reduction)):
            x = scores.clone().requires_grad_()
            loss = layer(x.log_softmax(-1), targets, lengths, sizes)
            results.append([loss, *grad(loss.sum(), x)])
        for ours, its in zip(*results[::-1], strict=True):
            assert_close(ours, its, atol=1e-10)


def test_ctc_without_a_batch_and_with_the_batch_first():
    scores, targets, lengths, sizes = frames(9)
    logs = scores.log_softmax(-1)
    every = CTCHead(reduction="none")(logs, targets, lengths, sizes)
    first = CTCHead(reduction="none", batch_first=True)
    assert_close(first(logs.transpose(0, 1), targets, tuple(lengths.tolist()), sizes), every)
    for k in range(4):
        own, size = lengths[k : k + 1], sizes[k : k + 1]
        for given in ((own[0], size[0]), (own, size), (own.tolist(), tuple(size.tolist()))):
            alone = first(logs[:, k], targets[k, : sizes[k]], *given)
            assert_close(alone, every[k])


def test_targets_that_do_not_fit_have_no_gradient():
    scores, targets, _, _ = frames(3)
    scores.requires_grad_()
    given = scores.log_softmax(-1), targets, [2, 2, 2, 2], [3, 3, 3, 1]
    loss = CTCHead(reduction="none")(*given)
    assert (loss[:3] == torch.inf).all()
    assert torch.isfinite(loss[3])
    assert (grad(loss[3] + loss[:3].sum(), scores)[0][:, :3] == 0).all()
    kept = CTCHead(reduction="none", zero_infinity=True)(*given)
    assert_close(kept, torch.where(loss == torch.inf, 0.0, loss))


def test_a_head_with_a_linear_layer_learns_and_decodes():
    head = CTCHead(features=6, labels=4, batch_first=True)
    x, targets = torch.randn(2, 8, 6), torch.tensor([[1, 2, 3], [3, 3, 0]])
    optimizer = torch.optim.Adam(head.parameters(), 0.1)
    for _ in range(150):
        optimizer.zero_grad()
        head(x, targets, [8, 8], [3, 2]).backward()
        optimizer.step()
    assert head.decode(x) == [[1, 2, 3], [3, 3]]
    assert head.decode(x[0]) == [1, 2, 3]
    assert head.decode(x, [0, 8]) == [[], [3, 3]]


def test_segments_are_those_of_the_best_labelling_with_posteriors_of_places():
    g = torch.Generator().manual_seed(5)
    scores, targets = torch.randn(5, 3, generator=g, dtype=F64), [1, 1]
    d = CTCHead(batch_first=True).distribution(scores, torch.tensor(targets))
    # All labellings that spell the target, with the place of each frame's label in it.
    paths = []
    for labels in product(range(3), repeat=5):
        place, before, places, spelt = -1, 0, [], []
        for label in labels:
            if label not in (0, before):
                place += 1
                spelt.append(label)
            places.append(place if label else None)
            before = label
        if spelt == targets:
            weight = sum(float(scores[t, y]) for t, y in enumerate(labels))
            paths.append((weight, places))
    total = log_add([weight for weight, _ in paths])
    posterior = torch.zeros(5, 2, dtype=F64)
    for weight, places in paths:
        for t, place in enumerate(places):
            if place is not None:
                posterior[t, place] += math.exp(weight - total)
    assert_close(d.target_marginals(), posterior)
    _, best = max(paths, key=lambda path: path[0])
    found = d.segments()
    for j in range(2):
        own = [t for t, place in enumerate(best) if place == j]
        assert (int(found.start[j]), int(found.stop[j])) == (own[0], own[-1] + 1)
        assert_close(found.confidence[j], posterior[own, j].mean())
    none = CTCHead(batch_first=True).distribution(scores[:1], torch.tensor(targets)).segments()
    assert none.start.tolist() == none.stop.tolist() == [-1, -1]
    assert none.confidence.tolist() == [0.0, 0.0]


# -------------------------------------------------------------------------------------- RNNT


def transducer_losses(logits, targets, blank, frames, sizes):
    """Graves (2012), equation 16, in plain loops."""
    logs = logits.log_softmax(-1)
    losses = []
    for b, (t, u) in enumerate(zip(frames, sizes, strict=True)):
        alpha = {(0, 0): torch.zeros((), dtype=logits.dtype)}
        for i in range(t):
            for j in range(u + 1):
                ways = []
                if i:
                    ways.append(alpha[i - 1, j] + logs[b, i - 1, j, blank])
                if j:
                    ways.append(alpha[i, j - 1] + logs[b, i, j - 1, targets[b, j - 1]])
                if ways:
                    alpha[i, j] = torch.stack(ways).logsumexp(0)
        losses.append(-alpha[t - 1, u] - logs[b, t - 1, u, blank])
    return torch.stack(losses)


def joint(seed):
    g = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, 4, 3, 5, generator=g, dtype=F64)
    targets = torch.randint(0, 4, (3, 2), generator=g, dtype=torch.int32)
    return logits, targets, torch.tensor([4, 3, 1]), torch.tensor([2, 1, 0])


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_rnnt_is_that_of_the_paper(reduction):
    for seed in seeds(4, few=1):
        logits, targets, lengths, sizes = joint(seed)
        x = logits.clone().requires_grad_()
        known = transducer_losses(x, targets.long(), 4, lengths.tolist(), sizes.tolist())
        known = {"none": known, "sum": known.sum(), "mean": known.mean()}[reduction]
        slopes = grad(known.sum(), x)
        loss = RNNTLoss(reduction=reduction)(x, targets, lengths.int(), sizes.int())
        assert_close(loss, known, atol=1e-10)
        assert_close(grad(loss.sum(), x)[0], slopes[0], atol=1e-10)
        fused = RNNTLoss(reduction=reduction, fused_log_softmax=False)
        assert_close(fused(x.log_softmax(-1), targets, lengths, sizes), known, atol=1e-10)


def test_rnnt_clamps_the_gradients_of_each_element():
    logits, targets, lengths, sizes = joint(2)
    x = (4 * logits).requires_grad_()
    plain = RNNTLoss(reduction="none")(x, targets, lengths, sizes)
    slopes = [grad(loss, x, retain_graph=True)[0] for loss in plain]
    assert max(float(slope.abs().max()) for slope in slopes) > 0.2
    loss = RNNTLoss(clamp=0.2)(x, targets, lengths, sizes)
    assert_close(loss, plain.mean())
    known = sum(slope.clamp(-0.2, 0.2) for slope in slopes) / 3
    assert_close(grad(5 * loss, x)[0], 5 * known)
    assert_close(RNNTLoss(clamp=0.2)(x.detach(), targets, lengths, sizes), plain.mean())


def test_rnnt_of_sums_never_makes_their_table():
    g = torch.Generator().manual_seed(1)
    encoder = torch.randn(2, 4, 5, generator=g, dtype=F64, requires_grad=True)
    predictor = torch.randn(2, 3, 5, generator=g, dtype=F64, requires_grad=True)
    targets, lengths, sizes = torch.tensor([[0, 1], [2, 0]]), [4, 2], [2, 1]
    layer = RNNTLoss()
    found = layer.additive(encoder, predictor, targets, lengths, sizes)
    known = layer(encoder[:, :, None] + predictor[:, None], targets, lengths, sizes)
    assert_close(found, known)
    pairs = zip(*(grad(x, [encoder, predictor]) for x in (found, known)), strict=True)
    for ours, its in pairs:
        assert_close(ours, its, atol=1e-10)


# ------------------------------------------------------------------------------- time series


def warping(costs, gamma):
    """Cuturi & Blondel (2017), equation 1 by their recursion."""
    n, m = costs.shape
    table = {(-1, -1): 0.0}
    for i in range(n):
        for j in range(m):
            before = [table.get(x, math.inf) for x in ((i - 1, j - 1), (i - 1, j), (i, j - 1))]
            if gamma == 0:
                least = min(before)
            else:
                least = -gamma * log_add([-x / gamma for x in before])
            table[i, j] = float(costs[i, j]) + least
    return table[n - 1, m - 1]


@pytest.mark.parametrize("gamma", [0.0, 0.1, 1.0])
def test_soft_dtw_is_that_of_the_paper(gamma):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(2, 4, 3, generator=g, dtype=F64)
    y = torch.randn(2, 5, 3, generator=g, dtype=F64)
    lengths, sizes = [4, 2], [3, 5]

    def known(a, b, n, m):
        costs = [(a[k, : n[k], None] - b[k, None, : m[k]]).square().sum(-1) for k in range(2)]
        return torch.tensor([warping(cost, gamma) for cost in costs], dtype=F64)

    plain = known(x, y, lengths, sizes)
    assert_close(SoftDTW(gamma)(x, y, lengths, sizes), plain, atol=1e-10)
    own = (known(x, x, lengths, lengths) + known(y, y, sizes, sizes)) / 2
    for reduction, wanted in (("none", plain - own), ("sum", (plain - own).sum())):
        found = SoftDTW(gamma, normalize=True, reduction=reduction)(x, y, lengths, sizes)
        assert_close(found, wanted, atol=1e-10)
    if gamma:
        assert gradcheck(SoftDTW(gamma), (x.requires_grad_(), y.requires_grad_()))


def test_the_padding_reaches_no_gradient():
    """Of what makes the scores, as well: inputs of a linear layer, rows of time series."""
    g = torch.Generator().manual_seed(1)
    x = torch.randn(5, 2, 3, generator=g, dtype=F64)
    y = torch.randn(6, 2, 3, generator=g, dtype=F64)
    lengths, sizes, targets = [5, 3], [4, 6], torch.tensor([[1, 2], [1, 0]])
    head = CTCHead(features=3, labels=3, dtype=F64)
    found = []
    for garbage in (0.0, math.nan, math.inf):
        a, b = x.clone(), y.clone()
        a[3:, 1], b[4:, 0] = garbage, garbage
        inputs = a.requires_grad_(), b.requires_grad_()
        loss = head(a, targets, lengths, [2, 1])
        first = grad(loss, [a, *head.parameters()])
        warped = SoftDTW(normalize=True)(a.transpose(0, 1), b.transpose(0, 1), lengths, sizes)
        found.append([loss, *first, warped, *grad(warped.sum(), inputs)])
    for other in found[1:]:
        for ours, plain in zip(other, found[0], strict=True):
            assert torch.equal(ours, plain)


def test_soft_dtw_with_other_distances():
    x, y = torch.tensor([[[0.0], [2.0]]]), torch.tensor([[[1.0], [2.0]]])
    found = SoftDTW(0.0, dist_func=torch.cdist)(x, y)
    assert_close(found, torch.tensor([1.0]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: CTCHead(reduction="token_mean"), "^reduction must be"),
        (lambda: CTCHead(features=3), "^labels must be given with features"),
        (lambda: CTCHead()(torch.zeros(3), torch.tensor([1])), r"^log_probs must be \[t b v\]"),
        (
            lambda: CTCHead()(torch.zeros(3, 2, 4), torch.tensor([1, 2, 3]), [3, 3], [1, 1]),
            r"^targets must be \[b u\], or \[2\] by their lengths",
        ),
        (
            lambda: CTCHead()(torch.zeros(3, 2, 4), torch.tensor([1, 2, 3])),
            "^target_lengths must be 2 lengths",
        ),
        (lambda: CTCHead()(torch.zeros(3, 1, 4), [[1]]), "^targets must be a tensor"),
        (lambda: CTCHead()(torch.zeros(3, 4), torch.tensor([1]), [4]), "^input_lengths must be in"),
        (lambda: RNNTLoss(clamp=math.nan), "^clamp must be a number"),
        (
            lambda: RNNTLoss(blank=4)(torch.zeros(1, 2, 2, 3), torch.tensor([[1]])),
            r"^blank must be in -3\.\.2",
        ),
        (
            lambda: RNNTLoss(fused_log_softmax=False)(torch.zeros(1, 2, 3, 3), torch.tensor([[1]])),
            r"^logits must be \[b t 2 v\]",
        ),
        (lambda: SoftDTW(-1.0), "^gamma must be"),
        (lambda: SoftDTW()(torch.zeros(1, 2, 3), torch.zeros(1, 2, 2)), r"^y must be \[1 m 3\]"),
    ],
)
def test_what_is_wrong_is_named(unchecked, call, message):
    with pytest.raises(ArgumentError, match=message):
        call()
