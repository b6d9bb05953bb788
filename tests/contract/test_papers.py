"""Every name on the page about the papers exists."""

import re
from importlib import import_module
from pathlib import Path

import pytest

import inout

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"`([^`\n]+)`", TEXT)))
QUALIFIED = [name for name in NAMES if re.fullmatch(r"inout(\.\w+)+", name)]
FILES = [name for name in NAMES if name.startswith(("tests/", "benchmarks/"))]


def test_there_are_names():
    assert len(QUALIFIED) > 60
    assert len(FILES) > 50


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
