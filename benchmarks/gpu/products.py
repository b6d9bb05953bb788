"""The matrix products that an HMM's log Z and gradient cannot do without, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import torch


def matrix_products(b: int, n: int, s: int) -> Callable[[], None]:
    """A run of the products: n - 1 forward, n - 1 backward, and one for the transition counts.

    [b s] x [s s] in turn, each waiting for the one before, with the transposed matrix backward;
    then [s b(n-1)] x [b(n-1) s]. cuBLAS, float32 without tf32, into memory that is there already.
    """
    generator = torch.Generator("cuda").manual_seed(0)

    def uniform(*shape: int) -> torch.Tensor:
        # Rows that sum to about 1: the products keep their size.
        return torch.rand(shape, generator=generator, device="cuda") * (2 / s)

    transition, alphas, betas = uniform(s, s), uniform(n, b, s), uniform(n, b, s)
    counts = torch.empty(s, s, device="cuda")
    before, after = alphas[:-1].reshape(-1, s), betas[1:].reshape(-1, s)

    def run() -> None:
        for t in range(1, n):
            torch.mm(alphas[t - 1], transition, out=alphas[t])
        for t in range(n - 1, 0, -1):
            torch.mm(betas[t], transition.T, out=betas[t - 1])
        torch.mm(before.T, after, out=counts)

    return run
