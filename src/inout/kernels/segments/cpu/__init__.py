"""Semi-Markov chains, compiled by numba."""
