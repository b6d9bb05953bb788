"""What several families share, compiled by numba."""
