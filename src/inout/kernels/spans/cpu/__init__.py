"""Binary trees whose labelled spans have scores of their own, compiled by numba."""
