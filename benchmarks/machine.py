"""What a run ran on: processor, memory, versions, commit, date."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("numpy", "numba", "torch", "triton", "polars")
PEERS = ("torch-struct", "pytorch-crf", "hmmlearn", "nltk")
BUSY = 0.5  # processes
ROOT = Path(__file__).parents[1]


def describe_machine(single_thread: bool) -> dict[str, Any]:
    """The machine and the state of the repository, in words and without paths."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "threads used": 1 if single_thread else "all cores",
        "load before": f"{load():.1f}" + (", BUSY" if is_busy() else ""),
        "memory": f"{_memory_gib():.0f} GiB",
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        **_gpu(),
        "libraries": _versions(PACKAGES),
        "peers": _versions(PEERS),
    }


def load() -> float:
    """Processes that ran or waited for a core in the last minute, on average."""
    return os.getloadavg()[0]


def is_busy() -> bool:
    """Whether others use the machine, so that times mean less."""
    return load() > BUSY


def _commit() -> str:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", "src", "benchmarks", ":!benchmarks/results")
        return git("rev-parse", "--short=12", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _memory_gib() -> float:
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)


def _gpu() -> dict[str, str]:
    """The GPU and its driver, nothing where there is none; torch need not be imported for it."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return {}
    names = [", driver ".join(map(str.strip, line.split(","))) for line in found.splitlines()]
    return {"GPU": "; ".join(names)} if names else {}


def _versions(packages: Sequence[str]) -> str:
    """Those that are installed, with their versions."""
    found = []
    for package in packages:
        with suppress(PackageNotFoundError):
            found.append(f"{package} {version(package)}")
    return ", ".join(found) or "none installed"
