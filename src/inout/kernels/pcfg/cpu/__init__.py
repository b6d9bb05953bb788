"""Dense weighted grammars, compiled by numba."""
