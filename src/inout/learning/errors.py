"""Errors of training."""

from __future__ import annotations

from inout._core.errors import InoutError


class TrainingError(InoutError):
    """Training cannot go on: the objective fell, or a sentence lost its last analysis."""
