"""Projective dependency trees, compiled by numba."""
