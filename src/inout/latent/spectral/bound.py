"""`ErrorBound`: theorem 3 as a number, from the constants of a model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inout._core.checks import expect
from inout._core.errors import ArgumentError
from inout.latent.spectral.estimation import SpectralEstimate

_ROUNDING = 1e-12  # moments below this share of the largest are zero


@dataclass(frozen=True)
class ErrorBound:
    """The constants of theorem 3, from which follows how many nodes are enough for which error.

    If every label has at least `examples` nodes in the training set, then with probability
    1 - δ the estimated probability p̂ of a tree of N nodes is p up to a factor from 1 - ε to 1 + ε:

        M ≥ 128 m² log(2mR/δ) / ((1+ε)^(1/(2N+1)) - 1)² / (Λ² σ⁴)

    In a basis of singular vectors Σᵃ is diagonal, so that (Σᵃ)⁻¹ has zeros, and Λ as printed, the
    least of all elements, is 0. Here it is the least of those that are not zero.

    >>> bound = ErrorBound(latent=2, rules=4, least=0.1, singular=0.2)
    >>> f"{bound.examples(0.5, nodes=3, failure=0.05):.2g}"
    '5.2e+10'
    >>> f"{bound.error(1e12, nodes=3, failure=0.05):.2f}"
    '0.10'
    """

    latent: int  # m
    rules: int  # R
    least: float  # Λ: the least size of an element of c¹, d∞, D and Σ⁻¹
    singular: float  # σ: the least m-th singular value of an Ω

    @staticmethod
    def of(estimate: SpectralEstimate) -> ErrorBound:
        """The constants of an estimate by `fit_spectral(…, estimator="paper")`.

        They are the model's own where the weights of the trees are their true probabilities, and
        estimates of these where they are counts.
        """
        if not estimate.is_plain:
            raise ArgumentError("estimate", 'must be in the paper\'s form: estimator="paper"')
        model, skeleton = estimate.model, estimate.model.skeleton
        layout, parameters = model.layout, model.parameters
        sigmas = [s[:m] for s, m in zip(estimate.singular_values, model.sizes, strict=True)]
        moments = [parameters[: layout.root_offsets[-1]]]
        for rule, a in enumerate(skeleton.lexical[:, 0].tolist()):
            moments.append(layout.lexical(parameters, rule) * sigmas[a])
        for rule, a in enumerate(skeleton.binary[:, 0].tolist()):
            moments.append((layout.block(parameters, rule).T * sigmas[a]).ravel())
        sizes = np.abs(np.concatenate([*moments, *(1 / s for s in sigmas)]))
        least = sizes[sizes > _ROUNDING * np.concatenate(moments).max()].min()
        rules = len(skeleton.lexical) + len(skeleton.binary)
        singular = min(float(s[-1]) for s in sigmas)
        return ErrorBound(int(model.sizes.max()), rules, float(least), singular)

    def error(self, examples: float, nodes: int, failure: float = 0.05) -> float:
        """ε for trees of N = `nodes`, except with probability δ = `failure`, from `examples`."""
        expect(examples > 0, "examples", "must be above 0", examples)
        step = np.sqrt(self._enough(nodes, failure) / examples)
        with np.errstate(over="ignore"):
            return float(np.expm1((2 * nodes + 1) * np.log1p(step)))

    def examples(self, error: float, nodes: int, failure: float = 0.05) -> float:
        """M, the number of nodes of every label that is enough for an error of ε = `error`."""
        expect(error > 0, "error", "must be above 0", error)
        step = np.expm1(np.log1p(error) / (2 * nodes + 1))
        return float(self._enough(nodes, failure) / step**2)

    def _enough(self, nodes: int, failure: float) -> float:
        """128 m² log(2mR/δ) / (Λ² σ⁴)."""
        expect(nodes >= 1, "nodes", "must be at least 1", nodes)
        expect(0 < failure < 1, "failure", "must be between 0 and 1", failure)
        likely = np.log(2 * self.latent * self.rules / failure)
        return float(128 * self.latent**2 * likely / (self.least**2 * self.singular**4))
