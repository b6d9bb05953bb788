"""The recorded faults."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS: tuple[Fault, ...] = ()
