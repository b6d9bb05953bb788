"""The workloads there are, by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from benchmarks.report import Agreement, Figure

THREAD_VARIABLES = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "POLARS_MAX_THREADS")


@dataclass(frozen=True)
class Workload:
    """A module `benchmarks.<module>` with the three functions of `Stages`."""

    name: str
    summary: str
    module: str
    single_thread: bool = False
    # Whether `prepare` takes `seed` and `resume` as well: see `benchmarks.processes`.
    trains: bool = False

    def load(self, seed: int = 0, resume: bool = False) -> Stages:
        """The workload's functions, its libraries imported with the threads it asks for."""
        if self.single_thread:
            for variable in THREAD_VARIABLES:
                os.environ[variable] = "1"
        module = import_module(f"benchmarks.{self.module}")
        given = {"seed": seed, "resume": resume} if self.trains else {}
        return Stages(partial(module.prepare, **given), module.check, module.measure)


@dataclass(frozen=True)
class Stages:
    """What the runner calls, in this order; timing starts only if every agreement holds."""

    prepare: Callable[[bool], Any]  # quick -> what the other two are given
    check: Callable[[Any], Iterator[Agreement]]
    measure: Callable[[Any], Iterator[Figure]]


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            "forest",
            "inside, outside, k best, samples on a random forest of ten million edges",
            "forest",
            single_thread=True,
        ),
        Workload(
            "deduction",
            "a WSJ grammar and a toy grammar from facts to a ready forest; the first use",
            "deduction",
        ),
        Workload(
            "chain",
            "chains, HMMs, segmentations beside torch-struct, pytorch-crf, hmmlearn on two cores",
            "chain",
        ),
        Workload(
            "moments",
            "second derivatives, objectives made of them, moments by their order, on two cores",
            "moments",
        ),
        Workload(
            "dependency",
            "dependency trees beside torch-struct, slogdet and stanza on two cores",
            "dependency",
        ),
        Workload(
            "alignment",
            "CTC, time warping, transducers beside torch and pysdtw on two cores",
            "alignment",
        ),
        Workload("pcfg", "trees of a grammar beside torch-struct on two cores", "pcfg"),
        Workload(
            "parser",
            "grammars of any shape beside NLTK, a WSJ grammar, parse counts, the GENIA treebank",
            "parser",
        ),
        Workload("em", "inside-outside over corpora: an iteration, and how it grows", "em"),
        Workload(
            "latent",
            "latent-variable grammars of GENIA by EM and spectral learning: F1, time, speed",
            "latent",
        ),
        Workload(
            "contexts-ocr",
            "reified contexts and beams on handwritten words: precision and recall, speed",
            "contexts_ocr",
            single_thread=True,
            trains=True,
        ),
        Workload(
            "contexts-decipher",
            "reified contexts and beams on a substitution cipher: accuracy over EM iterations",
            "contexts_decipher",
            trains=True,
        ),
        Workload(
            "contexts-align",
            "letters from phones with hidden alignments: contexts beside beams, error rates",
            "contexts_align",
            trains=True,
        ),
        Workload(
            "startup",
            "the first answer: warm and cold commands, small problems beside a busy neighbour",
            "startup",
        ),
        Workload("rna", "RNA folding with the Pfold grammar: accuracy and speed", "rna"),
        Workload("gpu", "every dense family on an NVIDIA GPU; the bounds are for an H200", "gpu"),
    )
}
