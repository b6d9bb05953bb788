"""Compiled code on disk: never older than the sources it was made from, wherever it can be kept."""

import importlib
import sys
from pathlib import Path

import pytest
from numba.core import caching as numba_caching
from numba.core import config

from inout._core.compilation import watching
from inout._core.cpu import caching

INNER = """
from inout._core.cpu.compiling import inner

@inner
def step(x):
    return x + {step}
"""
OUTER = """
from toy.cpu.steps import step
from inout._core.cpu.compiling import compiled

@compiled
def twice(x):
    return step(step(x))
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A package of two modules, of which one is compiled into the other."""
    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    folder = tmp_path / "toy" / "cpu"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent):
        (package / "__init__.py").write_text("")
    (folder / "steps.py").write_text(INNER.format(step=1))
    (folder / "outer.py").write_text(OUTER)
    yield folder
    _forget()


def _forget():
    for name in [name for name in sys.modules if name.split(".")[0] == "toy"]:
        del sys.modules[name]
    caching._read.cache_clear()
    caching.source_stamp.cache_clear()


def _load():
    """The function as a new process would import it."""
    _forget()
    sys.dont_write_bytecode = True
    try:
        importlib.import_module("toy.cpu.steps")
        return importlib.import_module("toy.cpu.outer").twice
    finally:
        sys.dont_write_bytecode = False


def _hits(function):
    return sum(function.stats.cache_hits.values())


def test_an_edit_in_an_imported_file_compiles_again(toy):
    heard = []
    with watching(heard.append):
        assert _load()(1) == 3
        assert heard == ["toy.cpu.outer.twice"]
        again = _load()
        assert again(1) == 3
        assert _hits(again) == 1
        assert len(heard) == 1
        (toy / "steps.py").write_text(INNER.format(step=10))
        edited = _load()
        assert edited(1) == 21
        assert _hits(edited) == 0
        assert len(heard) == 2
    # What was compiled from the old sources is gone.
    assert len(list((toy / "__pycache__").glob("outer.twice-*.nbi"))) == 1


def test_a_kernel_is_loaded_while_another_that_calls_it_is_compiled(toy):
    (toy / "steps.py").write_text(INNER.format(step=1).replace("inner", "compiled"))
    _load()
    assert sys.modules["toy.cpu.steps"].step(3) == 4
    twice = _load()
    assert twice(3) == 5
    step = sys.modules["toy.cpu.steps"].step
    assert step.stats.cache_hits
    assert step(3) == 4


def test_bundles_may_change_where_the_kernel_does_not_import_them(toy):
    bundle = "from typing import NamedTuple\n\nclass {}(NamedTuple):\n    {}: int\n    {}: int\n"
    (toy / "outer.py").write_text(
        "from inout._core.cpu.compiling import compiled\n\n"
        "@compiled\ndef twice(pair, pairs):\n"
        "    return pair.first - pair.second + pairs[0].first - pairs[0].second\n"
    )
    for name, *fields in (
        ("Pair", "first", "second"),
        ("Pair", "second", "first"),
        ("Couple", "first", "second"),
    ):
        (toy / "steps.py").write_text(bundle.format(name, *fields))
        function = _load()
        made = getattr(sys.modules["toy.cpu.steps"], name)
        pair = made(first=5, second=1)
        assert function(pair, (pair, 0.5)) == 8


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize("content", [b"", b"garbage", None], ids=["empty", "garbage", "cut off"])
def test_a_damaged_file_is_compiled_again(toy, suffix, content):
    assert _load()(1) == 3
    (path,) = toy.glob(f"__pycache__/*.{suffix}")
    path.write_bytes(path.read_bytes()[:-40] if content is None else content)
    assert _load()(1) == 3
    with watching(_fail):
        assert _load()(1) == 3


def _fail(name):
    raise AssertionError(f"{name} was not kept")


def test_a_read_only_folder_falls_back_to_the_users_cache(toy, tmp_path, monkeypatch):
    (toy / "__pycache__").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    first = _load()
    assert first(1) == 3
    assert Path(first.stats.cache_path).is_relative_to(tmp_path / "user")
    second = _load()
    assert second(1) == 3
    assert _hits(second) == 1


def test_without_any_folder_code_is_compiled_and_not_kept(toy, monkeypatch):
    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(numba_caching._CacheLocator, "ensure_cache_path", refuse)
    function = _load()
    assert function(1) == 3
    assert function.stats.cache_path is None


def test_the_folder_can_be_chosen(toy, tmp_path, monkeypatch):
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "chosen"))
    function = _load()
    assert function(1) == 3
    assert Path(function.stats.cache_path).is_relative_to(tmp_path / "chosen")
    assert list((tmp_path / "chosen").rglob("outer.twice-*.nbc"))


def test_all_ways_to_import_are_seen(tmp_path):
    package = tmp_path / "toy"
    package.mkdir()
    (package / "__init__.py").write_text("")
    ways = {
        "a": "from toy.a import x",
        "b": "from toy import b",
        "c": "from toy import (\n    b,  # first\n    c as other,\n)",
        "d": "import toy.d",
        "e": "import os, toy.e as e",
        "f": "def late():\n    from toy.f import x",
    }
    for name in ways:
        (package / f"{name}.py").write_text("x = 1\n")
    (package / "deep.py").write_text("from toy.a import x\n")
    user = package / "user.py"
    for name, line in {**ways, "a": "from toy.deep import x"}.items():
        user.write_text(line + "\n")
        stamps = set()
        for text in ("x = 1\n", "x = 2\n"):
            (package / f"{name}.py").write_text(text)
            caching._read.cache_clear()
            caching.source_stamp.cache_clear()
            stamps.add(caching.source_stamp(user))
        assert len(stamps) == 2, line
