"""Resident memory of this process. Linux only: peaks are read from and reset in /proc."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path


def resident(name: str) -> int:
    """Bytes now ("VmRSS") or at the peak ("VmHWM")."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise ValueError(name)


def start_of_phase() -> int:
    """Give freed memory back and forget the peak so far; the resident bytes now."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return resident("VmRSS")
