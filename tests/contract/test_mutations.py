"""Recorded faults still apply; `python -m tests.mutations` shows that the tests find them."""

from __future__ import annotations

import pytest

from tests.mutations.fault import PACKAGE, Fault, StaleFaultError
from tests.mutations.faults import FAULTS
from tests.mutations.run import ROOT


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_can_be_planted(fault: Fault) -> None:
    source = (ROOT / PACKAGE / fault.file).read_text(encoding="utf-8")
    planted = fault.planted(source)
    assert planted != source
    compile(planted, fault.file, "exec")
    assert fault.tests
    for test in fault.tests:
        if test.startswith("tests/"):
            assert (ROOT / test.partition("::")[0]).is_file(), f"{fault.name}: no {test}"


def test_names_are_different() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 30


def test_a_text_must_be_there_once() -> None:
    source = "def f():\n    x = 1\n    return x\n\ndef g():\n    x = 1\n"
    fault = Fault("a fault", "a.py", "g", "x = 1", "x = 2", ())
    assert fault.planted(source) == source[:-2] + "2\n"
    for function, text in (("g", "x = 3"), ("", "x = 1"), ("h", "x = 1")):
        with pytest.raises(StaleFaultError):
            Fault("a fault", "a.py", function, text, "", ()).planted(source)
