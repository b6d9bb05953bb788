"""The `inout` command."""

import gc
import sys
from typing import NoReturn

from inout.cli.app import main as main


def run() -> NoReturn:
    """Run the command and exit.

    Python's search for garbage would take a fifth of a short command's time, most of it at exit:
    torch and numba consist of a million objects, all of them in use.
    """
    gc.set_threshold(100_000)
    code = main()
    gc.freeze()
    sys.exit(code)
