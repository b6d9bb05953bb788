"""Smoothing of latent values towards each other."""

from __future__ import annotations

import numpy as np

from inout._core.checks import expect
from inout.latent.model import LPCFG


def smoothed(model: LPCFG, *, share: float = 0.01, lexical: float = 0.1) -> LPCFG:
    """The rules of each value of a nonterminal, mixed with their average over its values.

    p'(a_h → β) = (1 - share) · p(a_h → β) + share · Σ_k p(a_k → β) / m_a for binary rules, and the
    same with `lexical` for words; roots stay (Petrov et al. 2006, section 2.4). A value whose
    nonterminal has rules of both kinds would not keep its sum: its rules are rescaled to it. A
    value without rules stays without.

    >>> from inout.latent.layout import Layout
    >>> from inout.latent.skeleton import Skeleton
    >>> layout = Layout(Skeleton.of([], [("A", "x"), ("A", "y")]), 2)
    >>> smoothed(LPCFG(layout, np.array([0.5, 0.5, 1, 0, 0, 1]))).parameters
    array([0.5 , 0.5 , 0.95, 0.05, 0.05, 0.95])
    """
    model.refuse_negative("to be smoothed")
    for name, value in (("share", share), ("lexical", lexical)):
        expect(0 <= value <= 1, name, "must be from 0 to 1", value)
    layout, found = model.layout, model.parameters.copy()
    parts = [(layout.lexical(found, rule), lexical) for rule in range(len(layout.skeleton.lexical))]
    parts += [(layout.block(found, rule), share) for rule in range(len(layout.skeleton.binary))]
    for part, amount in parts:
        average = part.mean(axis=0)
        part *= 1 - amount
        part += amount * average
    groups = layout.distributions
    before, after = np.bincount(groups, model.parameters), np.bincount(groups, found)
    ratios = np.divide(before, after, out=np.ones(len(before)), where=after > 0)
    ratios[0] = 1.0
    found *= ratios[groups]
    return LPCFG(layout, found)
