"""Python and the command as processes of their own, the same from wherever the tests are run."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

COMMAND = ("-c", "import sys; from inout.cli import main; sys.exit(main())")
# Longer than any of them takes on a busy machine that has to compile every kernel.
PATIENCE = 300


def python(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """What Python does with `arguments`; `options` as for `subprocess.run`, `env` is added."""
    options = {"capture_output": True, "timeout": PATIENCE} | options
    return subprocess.run(_line(arguments), encoding="utf-8", **_with_variables(options))


def command(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """What the command does with `arguments`, in a process of its own."""
    return python(*COMMAND, *arguments, **options)


def started(*arguments: str | Path, **options: Any) -> subprocess.Popen[str]:
    """Python with `arguments`, its output in a pipe; use it in a `with` statement."""
    options = {"stdout": subprocess.PIPE} | options
    return subprocess.Popen(_line(arguments), encoding="utf-8", **_with_variables(options))


def on_terminal(
    *arguments: str | Path, columns: int, streams: Iterable[str] = ("stdin", "stdout", "stderr"),
    **variables: str,
) -> str:  # fmt: skip
    """What Python sends to a terminal that wide, which has these of its streams."""
    leader, follower = pty.openpty()
    wanted = {"TERM": "xterm", "COLUMNS": str(columns), **variables}
    connected = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    connected |= dict.fromkeys(streams, follower)
    process = subprocess.Popen(_line(arguments), **_with_variables({"env": wanted, **connected}))
    os.close(follower)
    sent = b""
    while True:
        try:
            chunk = os.read(leader, 65536)
        except OSError:  # Linux says so when the other end is closed
            break
        if not chunk:
            break
        sent += chunk
    os.close(leader)
    assert process.wait(timeout=PATIENCE) == 0, sent.decode()
    return sent.decode()


def _line(arguments: Iterable[str | Path]) -> list[str]:
    return [sys.executable, *map(str, arguments)]


def _with_variables(options: dict[str, Any]) -> dict[str, Any]:
    return options | {"env": os.environ | options.get("env", {})}
