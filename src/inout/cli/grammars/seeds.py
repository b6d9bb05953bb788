"""Random numbers of lines that threads work on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from inout.cli.grammars.loading import Line


def seeded_generator(seed: int | None) -> torch.Generator:
    """A generator with this seed, or with one of its own."""
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    return generator


def seeded(lines: Iterable[Line], seed: int | None) -> Iterator[tuple[Line, int]]:
    """Each line with a seed of its own, so that threads do not mix up what is drawn."""
    generator = seeded_generator(seed)
    for line in lines:
        yield line, int(torch.randint(2**62, (1,), generator=generator))
