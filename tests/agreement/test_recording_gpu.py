"""Recorded CUDA graphs: where they may be made and used, and the memory they keep."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from inout import PCFG
from inout.kernels.recording import SHELF, Recording, room_for_recordings
from tests.support import assert_close

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    """No recordings of other tests, and none for them."""
    for _ in range(2):
        gc.collect()
        SHELF.clear()
        SHELF._sizes.clear()
        torch.cuda.empty_cache()
        yield from [None] * (_ == 0)


def potentials(n: int, nt: int = 6, pt: int = 7, b: int = 3) -> list[Tensor]:
    generator = torch.Generator().manual_seed(n)
    shapes = (nt,), (nt, nt + pt, nt + pt), (b, n, pt)
    return [torch.randn(s, generator=generator).cuda() for s in shapes]


def gradient(inputs: list[Tensor]) -> list[Tensor]:
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    log_z = PCFG(*leaves).log_partition()
    return [log_z.detach(), *torch.autograd.grad(log_z.sum(), leaves)]


def test_a_recording_made_in_inference_mode_serves_others() -> None:
    x = torch.randn(5, device="cuda")
    with torch.inference_mode():
        double = Recording(lambda x: 2 * x, torch.ones(5, device="cuda"))
        assert_close(double(x), 2 * x)
    assert_close(double(x + 1), 2 * x + 2)
    assert not double(x).is_inference()
    for modes in ((True, True, False, False), (False, False, True, True)):
        inputs = potentials(5 + modes[0])
        expected = gradient(inputs)[0]
        for mode in modes:
            with torch.inference_mode(mode):
                assert_close(PCFG(*inputs).log_partition(), expected)
        assert_close(gradient(inputs)[0], expected)


def test_streams_do_not_share_recordings() -> None:
    inputs = potentials(9)
    expected = gradient(inputs)
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    for _ in range(20):
        found = []
        for number, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                found.append(gradient([x + number for x in inputs]))
        torch.cuda.synchronize()
        # Root, rules and words count 1 + (n - 1) + n times.
        for number, own in enumerate(found):
            assert_close(own[0], expected[0] + number * 18, rtol=1e-4)
            for x, y in zip(own[1:], expected[1:], strict=True):
                assert_close(x, y, atol=1e-3)


def test_recordings_are_replayed() -> None:
    """Otherwise the tests of memory would show nothing."""
    inputs = potentials(7)
    for _ in range(3):
        gradient(inputs)
    assert len(SHELF._free) == 1
    (kept,) = SHELF._free.values()
    assert 0 < kept.size < 2**27


def test_training_over_many_lengths_keeps_a_tenth_of_the_memory() -> None:
    """Recordings of all lengths together would be far larger."""
    lengths = torch.arange(3, 43)
    root, rules, _ = potentials(3, 96, 96)
    parameters = [x.requires_grad_() for x in (root, rules)]
    optimizer = torch.optim.SGD(parameters, 1e-3)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    generator = torch.Generator().manual_seed(0)
    kept, made = 0.0, 0.0
    for _ in range(4):
        for place in torch.randperm(len(lengths), generator=generator).tolist():
            n = int(lengths[place])
            words = potentials(n, 1, 96, b=24)[2]
            optimizer.zero_grad()
            (-PCFG(root, rules, words).log_partition().mean() / n).backward()
            optimizer.step()
            own = sum(x.size for x in SHELF._free.values())
            kept, made = max(kept, own), max(made, *SHELF._sizes.values())
    torch.cuda.synchronize()
    wanted = sum(SHELF._sizes.values())
    peak = torch.cuda.max_memory_reserved()
    gc.collect()
    torch.cuda.empty_cache()
    resting, room = torch.cuda.memory_reserved(), room_for_recordings()
    print(
        f"recordings {kept / 2**30:.2f} GiB of {room / 2**30:.2f}, all lengths {wanted / 2**30:.1f}"
        f"; reserved at most {peak / 2**30:.2f}, at rest {resting / 2**30:.2f}"
    )
    assert 0 < kept <= room
    assert resting <= room + 2**28
    # One step's own memory comes on top, and more of it while that step is recorded.
    assert peak <= room + 4 * made + 2**30


def test_recordings_are_freed_before_memory_runs_out() -> None:
    inputs, smaller = potentials(30, 64, 64, b=16), potentials(29, 64, 64, b=16)
    for _ in range(3):
        expected = gradient(inputs)
    assert SHELF._free
    kept = sum(x.size for x in SHELF._free.values())
    torch.cuda.empty_cache()
    rest = int(torch.cuda.mem_get_info()[0] - kept // 4)
    hoard = torch.empty(rest, dtype=torch.int8, device="cuda")
    found = gradient(smaller)
    assert not SHELF._free
    del hoard
    torch.cuda.empty_cache()
    for x, y in zip(found, gradient(smaller), strict=True):
        assert torch.equal(x, y)
    for x, y in zip(gradient(inputs), expected, strict=True):
        assert_close(x, y)


def test_recordings_are_of_one_device() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU here")
    inputs = potentials(8)
    expected = gradient(inputs)
    for _ in range(3):
        for x, y in zip(gradient([x.to("cuda:1") for x in inputs]), expected, strict=True):
            assert x.device.index == 1
            assert_close(x, y)
