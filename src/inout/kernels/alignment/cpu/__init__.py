"""Paths through a grid, compiled by numba."""
