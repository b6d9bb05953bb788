"""The commands and their options. Imports stay cheap here, so that help comes at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Optional

import typer

from inout._core.errors import ArgumentError, GroundingError, InoutError

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="inout",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
