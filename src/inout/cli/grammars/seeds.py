"""Seeds for lines that are handled by several threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch

from inout._core.pipeline import in_order
from inout.cli.grammars.answers import Answer
from inout.cli.grammars.loading import Line


def seeded_generator(seed: int | None) -> torch.Generator:
    """A generator with this seed, or with a random one."""
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    return generator


def seeded_answers(
    answer: Callable[[Line, int], Answer], lines: Iterable[Line], seed: int | None
) -> Iterator[Answer]:
    """The answer to each line, in order, as soon as it is there.

    Each has a seed of its own, so that threads do not mix up what is drawn.
    """
    generator = seeded_generator(seed)
    given = ((line, int(torch.randint(2**62, (1,), generator=generator))) for line in lines)
    return in_order(lambda pair: answer(*pair), given, torch.get_num_threads())
