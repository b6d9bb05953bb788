"""Grammars with latent values, compiled by numba."""
