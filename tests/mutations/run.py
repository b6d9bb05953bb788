"""Run the tests of a fault in a copy of the project that has it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from tests.mutations.fault import Fault, StaleFaultError

ROOT = Path(__file__).resolve().parents[2]
# pytest's exit codes: all passed, some failed.
PASSED, FAILED = 0, 1
PATIENCE = 900.0


@dataclass(frozen=True)
class Verdict:
    """What the tests said about a fault, and in how many seconds."""

    fault: str
    outcome: str  # "caught", "hangs" (caught too), "SURVIVED", "BROKEN": the tests did not run
    by: str  # the first test that failed, or what went wrong
    seconds: float

    @property
    def caught(self) -> bool:
        return self.outcome in ("caught", "hangs")


def judge(fault: Fault) -> Verdict:
    """What the tests of a fault say with it in the code."""
    start = monotonic()
    with tempfile.TemporaryDirectory(prefix="inout-fault-") as folder:
        root = Path(folder) / "inout"
        copy_project(root)
        try:
            fault.plant(root)
            outcome, by = _verdict(*run_tests(root, fault.tests))
        except subprocess.TimeoutExpired:
            outcome, by = "hangs", f"no answer in {PATIENCE:.0f} s"
        except StaleFaultError as error:
            outcome, by = "BROKEN", str(error)
    return Verdict(fault.name, outcome, by, monotonic() - start)


def copy_project(root: Path) -> None:
    """Copy what git knows or would add, and compiled kernels.

    Those are found by a hash of all the sources that they are made of, so what the fault touches
    is compiled again, and only that.
    """
    for source in (ROOT / "src").rglob("__pycache__/*.nb[ic]"):
        target = root / source.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        source, target = ROOT / name, root / name
        if source.is_file() and not name.startswith("benchmarks/results/"):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)  # numba looks at the time


def run_tests(root: Path, tests: tuple[str, ...]) -> tuple[int, str]:
    """pytest's exit code and its output, in the default tier, of the project at `root`."""
    # Checked annotations would only find more, and take time.
    variables = os.environ | {"CI": "true", "INOUT_TYPECHECK": "0", "PYTHONPATH": str(root / "src")}
    variables.pop("NUMBA_CACHE_DIR", None)
    options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=line"]
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=root,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )
    return answer.returncode, answer.stdout


def _verdict(code: int, output: str) -> tuple[str, str]:
    lines = output.splitlines()
    if code == PASSED:
        return "SURVIVED", lines[-1] if lines else ""
    if code == FAILED:
        failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
        return "caught", failed[0].split(" - ")[0].split(" ", 1)[1] if failed else ""
    return "BROKEN", next((line for line in reversed(lines) if line.strip()), f"exit code {code}")
