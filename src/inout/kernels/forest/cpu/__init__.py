"""Explicit forests, compiled by numba."""
