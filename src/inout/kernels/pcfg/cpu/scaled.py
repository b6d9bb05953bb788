"""Inside and outside passes of weighted grammars in scaled arithmetic, element by element.

A span's nonterminals share one scale: betas [n n nt] have 1 as their largest entry and sigmas
[n n] is the logarithm of the scale, -inf where nothing is possible. For all spans of one width
the sums over splits are made first, an nt x nt matrix of products for each, and one matrix product
then brings in the rules. A word on either side of a split is met through matrices made once for
each position (`meet_words`), so the many rules with preterminals cost little.

The weights of an element, all relative to their largest: root [nt]; `both` [nt*nt nt], the rules
with two nonterminals, head last; `left` [nt pt s], those whose left child is a preterminal;
`right` [nt pt nt], those with a nonterminal on the left and a preterminal on the right, which
comes second here; words [n pt].
"""

from __future__ import annotations

import math

import numpy as np

from inout._core.cpu.compiling import compiled
from inout.kernels.math.cpu.exponential import FAST
from inout.kernels.math.cpu.products import (
    add,
    add_product_of_columns,
    multiply,
    multiply_transposed,
)


@compiled
def meet_words(left, right, words, lefts, rights):
    """Fills lefts [nt n s], the sum over B of words(i, B) rule(A, B, C), and rights [nt n nt].

    rights is the sum over C of rule(A, B, C) words(j, C), for nonterminals B.
    """
    for a in range(left.shape[0]):
        multiply(words, left[a], lefts[a])
        multiply(words, right[a], rights[a])


@compiled(fastmath=FAST)
def add_product(matrices, place, first, vector, factor, total):
    """total[a] += factor * sum over c of matrices[a, place, first + c] vector[c]."""
    for a in range(total.shape[0]):
        entry = factor * 0
        for c in range(vector.shape[0]):
            entry += matrices[a, place, first + c] * vector[c]
        total[a] += factor * entry


@compiled(fastmath=FAST)
def add_outer(left, right, factor, pairs):
    """pairs += factor * left right^T; pairs is flat."""
    size = right.shape[0]
    for p in range(left.shape[0]):
        weight = factor * left[p]
        for q in range(size):
            pairs[p * size + q] += weight * right[q]


@compiled
def shift_of(sigmas, word_sigmas, width, i):
    """The largest log scale of the splits of i..i+width-1, -inf where there is none."""
    j = i + width - 1
    if width == 2:
        return word_sigmas[i] + word_sigmas[j]
    top = max(word_sigmas[i] + sigmas[i + 1, j], sigmas[i, j - 1] + word_sigmas[j])
    for k in range(i + 1, j - 1):
        top = max(top, sigmas[i, k] + sigmas[k + 1, j])
    return top


@compiled
def gather(lefts, rights, words, betas, sigmas, word_sigmas, width, i, shift, total, pairs):
    """Adds the splits of one span, relative to the scale exp(shift), to total [nt] and pairs.

    total has what a word on one side contributes; pairs [nt*nt] is still to meet the rules.
    """
    nt, kind = betas.shape[2], betas.dtype.type
    j = i + width - 1
    if width == 2:
        factor = kind(math.exp(word_sigmas[i] + word_sigmas[j] - shift))
        add_product(lefts, i, nt, words[j], factor, total)
        return
    if word_sigmas[i] + sigmas[i + 1, j] > -np.inf:
        factor = kind(math.exp(word_sigmas[i] + sigmas[i + 1, j] - shift))
        add_product(lefts, i, 0, betas[i + 1, j], factor, total)
    if sigmas[i, j - 1] + word_sigmas[j] > -np.inf:
        factor = kind(math.exp(sigmas[i, j - 1] + word_sigmas[j] - shift))
        add_product(rights, j, 0, betas[i, j - 1], factor, total)
    for k in range(i + 1, j - 1):
        if sigmas[i, k] + sigmas[k + 1, j] > -np.inf:
            factor = kind(math.exp(sigmas[i, k] + sigmas[k + 1, j] - shift))
            add_outer(betas[i, k], betas[k + 1, j], factor, pairs)


@compiled
def settle(total, scale, tiny, beta):
    """Writes beta [nt] with 1 as its largest entry: (its log scale, whether some are too small).

    Totals below tiny are set to 0: that is right where the symbol is impossible, and else the
    element may have to be done again. tiny = 0 asks for possibility alone: 1 or 0, all scales 1.
    """
    top, low = total[0], False
    for a in range(total.shape[0]):
        top = max(top, total[a])
    for a in range(total.shape[0]):
        beta[a] = 0
    # Not `top < tiny`: NaN, too, must send the element to log space.
    if not top >= tiny or top == 0:
        return -np.inf, True
    for a in range(total.shape[0]):
        if tiny == 0:
            beta[a] = 1 if total[a] > 0 else 0
        elif total[a] >= tiny:
            beta[a] = total[a] / top
        else:
            low = True
    return (scale + math.log(top) if tiny > 0 else 0.0), low


@compiled
def inside(
    both, left, right, words, word_sigmas, tops, lengths, lo, hi, tiny, floor,
    lefts, rights, betas, sigmas, low,
):  # fmt: skip
    """Fills lefts [b nt n s], rights [b nt n nt], betas [b n n nt], sigmas [b n n] and low [b].

    `low` says in which elements a total fell below tiny. Every total has `floor` added to it. Of
    the rules' weights there is one set for each element, or one for all. O(n³ nt² + n² nt³ +
    n nt pt s) for an element.
    """
    n, nt = betas.shape[1], betas.shape[3]
    totals, products = np.empty((n, nt), words.dtype), np.empty((n, nt), words.dtype)
    pairs = np.empty((n, nt * nt), words.dtype)
    for b in range(lo, hi):
        own = b if both.shape[0] > 1 else 0
        meet_words(left[own], right[own], words[b], lefts[b], rights[b])
        low[b] = False
        for width in range(2, lengths[b] + 1):
            count = lengths[b] - width + 1
            totals[:count] = floor
            if width > 3:
                pairs[:count] = 0
            for i in range(count):
                shift = shift_of(sigmas[b], word_sigmas[b], width, i)
                sigmas[b, i, i + width - 1] = shift
                if shift > -np.inf:
                    gather(
                        lefts[b], rights[b], words[b], betas[b], sigmas[b], word_sigmas[b], width,
                        i, shift, totals[i], pairs[i],
                    )  # fmt: skip
            if width > 3:
                multiply(pairs[:count], both[own], products[:count])
                add(products[:count].reshape(count * nt), totals[:count].reshape(count * nt))
            for i in range(count):
                j = i + width - 1
                scale = sigmas[b, i, j] + tops[own]
                sigmas[b, i, j], small = settle(totals[i], scale, tiny, betas[b, i, j])
                low[b] = low[b] or small


@compiled(fastmath=FAST)
def back_through(matrices, place, first, vector, factor, gradient, grad_matrices, grad_vector):
    """Backward of `add_product`, given the gradient by the total."""
    for a in range(gradient.shape[0]):
        weight = factor * gradient[a]
        for c in range(vector.shape[0]):
            grad_matrices[a, place, first + c] += weight * vector[c]
            grad_vector[c] += weight * matrices[a, place, first + c]


@compiled(fastmath=FAST)
def back_through_outer(left, right, factor, grad_pairs, grad_left, grad_right, pairs):
    """Backward of `add_outer`, which is done as well; pairs are flat."""
    size = right.shape[0]
    for p in range(left.shape[0]):
        weight = factor * left[p]
        total = factor * 0
        for q in range(size):
            entry = grad_pairs[p * size + q]
            total += entry * right[q]
            grad_right[q] += weight * entry
            pairs[p * size + q] += weight * right[q]
        grad_left[p] += factor * total


@compiled
def spread(
    lefts, rights, words, betas, sigmas, word_sigmas, top, width, i, gradient, grad_pairs,
    pairs, grad_betas, grad_lefts, grad_rights, grad_words,
):  # fmt: skip
    """Sends the gradient [nt] by a span's beta down to what it is made of, given grad_pairs.

    pairs [nt*nt] receives the sum over splits again, in the span's own scale.
    """
    nt, kind = betas.shape[2], betas.dtype.type
    j = i + width - 1
    shift = sigmas[i, j] - top
    if width == 2:
        factor = kind(math.exp(word_sigmas[i] + word_sigmas[j] - shift))
        back_through(lefts, i, nt, words[j], factor, gradient, grad_lefts, grad_words[j])
        return
    if word_sigmas[i] + sigmas[i + 1, j] > -np.inf:
        factor = kind(math.exp(word_sigmas[i] + sigmas[i + 1, j] - shift))
        back_through(
            lefts, i, 0, betas[i + 1, j], factor, gradient, grad_lefts, grad_betas[i + 1, j]
        )
    if sigmas[i, j - 1] + word_sigmas[j] > -np.inf:
        factor = kind(math.exp(sigmas[i, j - 1] + word_sigmas[j] - shift))
        back_through(
            rights, j, 0, betas[i, j - 1], factor, gradient, grad_rights, grad_betas[i, j - 1]
        )
    for k in range(i + 1, j - 1):
        if sigmas[i, k] + sigmas[k + 1, j] > -np.inf:
            factor = kind(math.exp(sigmas[i, k] + sigmas[k + 1, j] - shift))
            back_through_outer(
                betas[i, k], betas[k + 1, j], factor, grad_pairs,
                grad_betas[i, k], grad_betas[k + 1, j], pairs,
            )  # fmt: skip


@compiled
def back_to_words(left, right, words, grad_lefts, grad_rights, grad_left, grad_right, grad_words):
    """Backward of `meet_words`; adds to the gradients of the rules and the words."""
    part = np.empty(words.shape, words.dtype)
    for a in range(left.shape[0]):
        add_product_of_columns(words, grad_lefts[a], grad_left[a])
        add_product_of_columns(words, grad_rights[a], grad_right[a])
        multiply_transposed(grad_lefts[a], left[a], part)
        add(part.reshape(part.size), grad_words.reshape(part.size))
        multiply_transposed(grad_rights[a], right[a], part)
        add(part.reshape(part.size), grad_words.reshape(part.size))


@compiled
def outside(
    both, left, right, words, word_sigmas, tops, lengths, lo, hi, lefts, rights, betas, sigmas,
    root_gradient, grad_betas, grad_both, grad_left, grad_right, grad_words, slot,
):  # fmt: skip
    """Gradients of the sum over elements of root_gradient[b] . beta of the whole element.

    Fills grad_betas [b n n nt] and grad_words [b n pt]; adds to the rules' gradients at place
    `slot`, or b where each element has rules of its own. The gradient by a beta that is 0 is set
    to 0: it would be finite, but what it is passed on to, from span to span, might not.
    """
    n, nt = betas.shape[1], betas.shape[3]
    gradients = np.empty((n, nt), words.dtype)
    pairs, grad_pairs = np.empty((n, nt * nt), words.dtype), np.empty((n, nt * nt), words.dtype)
    grad_lefts = np.empty(lefts.shape[1:], words.dtype)
    grad_rights = np.empty(rights.shape[1:], words.dtype)
    for b in range(lo, hi):
        own = b if both.shape[0] > 1 else 0
        target = b if both.shape[0] > 1 else slot
        grad_betas[b] = 0
        grad_words[b] = 0
        grad_lefts[:] = 0
        grad_rights[:] = 0
        if lengths[b] > 1:
            grad_betas[b, 0, lengths[b] - 1] = root_gradient[b]
        for width in range(lengths[b], 1, -1):
            count = lengths[b] - width + 1
            for i in range(count):
                j = i + width - 1
                for a in range(nt):
                    if betas[b, i, j, a] == 0:
                        grad_betas[b, i, j, a] = 0
                    gradients[i, a] = grad_betas[b, i, j, a]
            if width > 3:
                multiply_transposed(gradients[:count], both[own], grad_pairs[:count])
                pairs[:count] = 0
            for i in range(count):
                if sigmas[b, i, i + width - 1] > -np.inf:
                    spread(
                        lefts[b], rights[b], words[b], betas[b], sigmas[b], word_sigmas[b],
                        tops[own], width, i, gradients[i], grad_pairs[i], pairs[i],
                        grad_betas[b], grad_lefts, grad_rights, grad_words[b],
                    )  # fmt: skip
            if width > 3:
                add_product_of_columns(pairs[:count], gradients[:count], grad_both[target])
        back_to_words(
            left[own], right[own], words[b], grad_lefts, grad_rights,
            grad_left[target], grad_right[target], grad_words[b],
        )  # fmt: skip
