"""The variables that tests run with: the same whatever the caller's shell has set."""

from __future__ import annotations

from collections.abc import MutableMapping

# What is read by the package, the command and what they use, but is no choice of whoever tests.
UNSET = (
    *("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLORTERM"),
    *("TTY_COMPATIBLE", "TTY_INTERACTIVE", "TERMINAL_WIDTH", "MAX_WIDTH", "GITHUB_ACTIONS"),
    *("PYTHONUNBUFFERED", "PYTHONWARNINGS", "PYTHONHASHSEED", "PYTHONIOENCODING"),
    *("PYTHONOPTIMIZE", "PYTHONDEVMODE", "PYTHONVERBOSE", "PYTHONINSPECT"),
    *("LANGUAGE", "LC_CTYPE", "LC_NUMERIC", "LC_TIME", "LC_MESSAGES"),
)
# Tests are small, and several workers share the cores already: one thread for each.
FIXED = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TZ": "UTC",
    "LC_ALL": "C.UTF-8",
    "PYTHONUTF8": "1",
}
# What CONTRIBUTING.md offers; any other setting of ours would change what is tested.
OURS = ("INOUT_DATA", "INOUT_TYPECHECK")


def make_plain(variables: MutableMapping[str, str]) -> None:
    """Change `variables` (`os.environ`) so that tests and the processes they start see the same."""
    for name in list(variables):
        if name in UNSET or (name.startswith("INOUT_") and name not in OURS):
            del variables[name]
    variables.update(FIXED)
