"""Sparse weighted grammars, compiled by numba."""
