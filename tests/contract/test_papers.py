"""Every name on the page about the papers exists."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest
from typer.main import get_command

import inout
import inout.latent
from inout.cli.app import app

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"`([^`\n]+)`", TEXT)))
QUALIFIED = [name for name in NAMES if re.fullmatch(r"inout(\.\w+)+", name)]
FILES = [name for name in NAMES if name.startswith(("tests/", "benchmarks/"))]
CALLS = [name for name in NAMES if re.fullmatch(r"[\w.]+\(.+\)", name)]
COMMANDS = [name for name in NAMES if re.fullmatch(r"inout [a-z -]+", name)]


def test_there_are_names():
    assert len(QUALIFIED) > 60
    assert len(FILES) > 50
    assert len(CALLS) > 10
    assert len(COMMANDS) > 4


@pytest.mark.parametrize("name", QUALIFIED)
def test_a_name_of_the_library_exists(name):
    found = inout
    for part in name.split(".")[1:]:
        if not hasattr(found, part):
            found = import_module(f"{found.__name__}.{part}")
        else:
            found = getattr(found, part)


@pytest.mark.parametrize("name", FILES)
def test_a_file_exists_and_has_the_test(name):
    path, _, test = name.partition("::")
    text = (ROOT / path).read_text(encoding="utf-8")
    assert re.search(rf"^def {test}\(", text, re.MULTILINE) or not test


@pytest.mark.parametrize("name", CALLS)
def test_a_function_has_the_options(name):
    function, options = name.removesuffix(")").split("(")
    first, *rest = function.split(".")
    found = getattr(inout if hasattr(inout, first) else inout.latent, first)
    for part in rest:
        found = getattr(found, part)
    known = inspect.signature(found).parameters
    for option in options.split(", "):
        assert option.partition("=")[0] in known


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_the_options(name):
    found, known = get_command(app), set()
    for part in name.split()[1:]:
        if part.startswith("--"):
            assert part in known
        else:
            found = found.commands[part]
            known = {option for parameter in found.params for option in parameter.opts}
