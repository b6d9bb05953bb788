"""What distributions must do whose events do not tell all that the oracle sums over."""

from __future__ import annotations

from functools import wraps
from typing import Any

import pytest
import torch
from torch.autograd import grad

from inout import InoutError
from tests.contract.distribution_suite import F64, Case, SeenEnumeration
from tests.contract.moments_suite import MomentsSuite
from tests.support import assert_close


def _exhaustive(test: Any) -> Any:
    """A test of the suite that only runs with --exhaustive."""

    @pytest.mark.exhaustive
    @wraps(test)
    def checked(*arguments: Any, **named: Any) -> None:
        test(*arguments, **named)

    return checked


class LatentSuite:
    """For a `DistributionSuite`, to come before it: its events have latent values as well.

    Marginals, moments, covariances and the forest are compared with sums over all of them;
    scores, decodings, samples and entropies with sums over what is seen of them.
    """

    make: Any
    usual: Any
    sizes: tuple[int, int]

    # Moments are those of the forest: that it is the right one others show as well.
    test_moments_of_three_functions = _exhaustive(MomentsSuite.test_moments_of_three_functions)
    test_moments_of_complex_functions = _exhaustive(MomentsSuite.test_moments_of_complex_functions)
    test_cumulants_by_every_method = _exhaustive(MomentsSuite.test_cumulants_by_every_method)
    test_moments_of_single_precision_are_those_of_its_numbers = _exhaustive(
        MomentsSuite.test_moments_of_single_precision_are_those_of_its_numbers
    )
    test_moments_pass_gradcheck = _exhaustive(MomentsSuite.test_moments_pass_gradcheck)
    test_signed_and_complex_weights = _exhaustive(MomentsSuite.test_signed_and_complex_weights)
    test_theorem_4_weighted_marginals_on_circles = _exhaustive(
        MomentsSuite.test_theorem_4_weighted_marginals_on_circles
    )
    test_moments_under_hard_constraints = _exhaustive(
        MomentsSuite.test_moments_under_hard_constraints
    )
    test_weighted_marginals_about_the_mean_are_differentiable = _exhaustive(
        MomentsSuite.test_weighted_marginals_about_the_mean_are_differentiable
    )
    test_many_sparse_functions_at_once = _exhaustive(
        MomentsSuite.test_many_sparse_functions_at_once
    )

    # There is none: see `test_sparsemap_needs_the_table`.
    test_sparsemap = None
    test_sparsemap_of_impossible_and_of_huge_potentials = None
    test_derivatives_of_sparsemap = None
    test_sparsemap_ignores_the_padding = None
    test_sparsemap_says_when_it_cannot = None

    def test_sparsemap_needs_the_table(self) -> None:
        d = self.make(self.usual(701))
        with pytest.raises(InoutError, match=r"latent value summed out; use dense\(\)\.sparsemap"):
            d.sparsemap()
        found = d.dense().sparsemap()
        assert_close(found.weights.sum(0), torch.ones(d.batch_shape, dtype=F64))
        assert bool((d.log_prob(found.events) > -torch.inf).all())

    def seen(self, case: Case) -> SeenEnumeration:
        return SeenEnumeration(self, case)  # type: ignore[arg-type]

    def test_log_prob_is_normalised_and_adds_up_the_parts(self):
        for case in (self.usual(19), self.usual(20, batch=())):
            case = case.leaves()
            d, oracle = self.make(case), self.seen(case)
            events = oracle.padded(oracle.events[0])
            support = d.enumerate_support()
            first = support.reshape(len(events), len(oracle.elements), *d.event_shape)
            places = {tuple(e.reshape(-1).tolist()): i for i, e in enumerate(first[:, -1])}
            order = [places[tuple(e.reshape(-1).tolist())] for e in events]
            assert sorted(order) == list(range(len(support)))
            log_probs = d.log_prob(support)
            assert torch.equal(log_probs, d.log_prob(d.enumerate_support(expand=False)))
            assert_close(log_probs.logsumexp(0), torch.zeros(case.batch, dtype=F64))
            truth = torch.stack(oracle.scores(), 1).reshape(-1, *case.batch) - oracle.log_z()
            assert_close(log_probs[order], truth)
            ours = grad(log_probs[order][0].sum(), case.arguments.values(), retain_graph=True)
            theirs = grad(truth[0].sum(), case.arguments.values())
            for x, y in zip(ours, theirs, strict=True):
                assert_close(x, y)
            parts, p = d.parts(support), log_probs.exp()
            counts = torch.stack(oracle.counts(), 1)  # [events elements parts]
            found = torch.stack([oracle.flat({n: x[i] for n, x in parts.items()}) for i in order])
            assert_close(found, counts)
            for name, m in d.marginals().items():
                weight = p.reshape(p.shape + (1,) * (m.ndim - len(case.batch)))
                assert_close((weight * parts[name]).sum(0), m)
