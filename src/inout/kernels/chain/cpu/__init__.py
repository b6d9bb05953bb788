"""Linear chains, compiled by numba."""
