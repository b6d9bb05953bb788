"""Set-up of all tests: two tiers, one environment, checked annotations, the data directory."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from jaxtyping import config as jaxtyping_config

from tests import environment, seeds

environment.make_plain(os.environ)  # before torch is imported

import torch  # noqa: E402

from tests import typechecking  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]

# Kept also where PYTHONDONTWRITEBYTECODE is set, since all modules are rewritten for the tests
# (assertions, annotations), and that takes each worker more than ten seconds.
sys.dont_write_bytecode = False

# INOUT_TYPECHECK=0 runs the package as its users do (and gives shorter tracebacks).
if os.environ.get("INOUT_TYPECHECK", "1") != "0":
    typechecking.check_annotations()

# Kernels compile on their first call, so a deadline would fail whichever example comes first.
settings.register_profile("local", deadline=None, print_blob=True)
settings.register_profile("ci", parent=settings.get_profile("local"), derandomize=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--exhaustive",
        action="store_true",
        help="every seed of every grid, and the tests that start and kill processes",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "exhaustive: slow, so it runs only with --exhaustive")
    config.addinivalue_line("markers", "few(n): so many of its cases without --exhaustive")
    config.addinivalue_line("markers", "one_in(k): of classes that inherit it, see tests/seeds.py")
    seeds.exhaustive = config.getoption("exhaustive")
    chosen = settings.get_profile("ci" if os.environ.get("CI") else "local")
    few = seeds.examples(chosen.max_examples)
    settings.register_profile("tier", parent=chosen, max_examples=few)
    settings.load_profile("tier")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Without looking for garbage in what modules and tests leave: all of it stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = seeds.left_out(items)
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """What draws from the default generators draws the same, whatever has run before."""
    torch.default_generator.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def ordinary_terminal_and_signals() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, also under nohup or in a job in the background.

    Those ignore SIGINT, and so would the processes that tests start. The terminal is set here
    and not earlier, because pytest shows its colours where there are some.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERM", "xterm")
        yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Annotations are not checked, as for users: the library itself must refuse wrong types."""
    before = jaxtyping_config.jaxtyping_disable
    jaxtyping_config.update("jaxtyping_disable", True)
    yield
    jaxtyping_config.update("jaxtyping_disable", before)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The directory of public data sets; a test that asks for it is skipped where there is none."""
    path = Path(os.environ.get("INOUT_DATA") or ROOT.parent / "shared" / "data")
    if not path.is_dir():
        pytest.skip(f"no data directory at {path} (set INOUT_DATA to where it is)")
    return path
