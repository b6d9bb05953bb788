"""Independent trainings in processes of their own, one thread each; finished ones are kept."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from benchmarks.registry import THREAD_VARIABLES
from benchmarks.report import say

ROOT = Path(__file__).parents[1]
# Not in git. Another folder lets trainings come back from a machine that is given back.
KEPT = Path(os.environ.get("INOUT_TRAININGS", ROOT / "build" / "trainings"))

P = TypeVar("P")  # what to train: a frozen dataclass of numbers and strings
R = TypeVar("R")  # what came out: a dataclass of what JSON can hold


@dataclass(frozen=True)
class Trainings(Generic[P, R]):
    """How to train, and where what came out is kept.

    With `resume`, a training that ended in an earlier run of the same code is not done again: a run
    that was cut off goes on where it stopped.
    """

    workload: str
    train: Callable[[P], R]  # a function of a module, so that other processes find it
    result: Callable[..., R]  # the class of what it returns
    tell: Callable[[P, R], str]  # one line on a training that ended
    resume: bool = False

    def __call__(self, plans: Sequence[P]) -> dict[P, R]:
        """All trainings, as many at a time as there are cores; begin with those that take long."""
        folder = KEPT / self.workload
        folder.mkdir(parents=True, exist_ok=True)
        files = {plan: folder / f"{self._key(plan)}.json" for plan in plans}
        done = self._read(files) if self.resume else {}
        if done:
            say(f"  {len(done)} of {len(files)} trainings ended in an earlier run")
        left = [plan for plan in files if plan not in done]
        pool = ProcessPoolExecutor(
            max(1, min(len(os.sched_getaffinity(0)), len(left))),
            multiprocessing.get_context("spawn"),
            initializer=_one_thread,
            max_tasks_per_child=1,
        )
        try:
            plan_of = {pool.submit(self.train, plan): plan for plan in left}
            for ended in as_completed(plan_of):
                plan, run = plan_of[ended], ended.result()
                _write(files[plan], {"plan": asdict(plan), "run": asdict(run)})  # type: ignore[call-overload]
                done[plan] = run
                say(f"  {self.tell(plan, run)} ({len(done)} of {len(files)} trainings)")
        finally:
            # After a fault those that wait need not begin.
            pool.shutdown(cancel_futures=True)
        return {plan: done[plan] for plan in plans}

    def _key(self, plan: P) -> str:
        text = json.dumps([code(self.train.__module__), asdict(plan)])  # type: ignore[call-overload]
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    def _read(self, files: Mapping[P, Path]) -> dict[P, R]:
        found = {plan: path for plan, path in files.items() if path.is_file()}
        return {
            plan: self.result(**json.loads(path.read_text(encoding="utf-8"))["run"])
            for plan, path in found.items()
        }


@cache
def code(module: str) -> str:
    """A hash of the library and of the module that trains: the same on another machine."""
    files = sorted((ROOT / "src" / "inout").rglob("*.py"))
    files.append(ROOT / f"{module.replace('.', '/')}.py")
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def _one_thread() -> None:
    """Before the libraries that would start more are imported."""
    for variable in THREAD_VARIABLES:
        os.environ[variable] = "1"


def _write(path: Path, document: dict[str, Any]) -> None:
    """A run that is killed leaves no half of a file."""
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(document), encoding="utf-8")
    draft.replace(path)
