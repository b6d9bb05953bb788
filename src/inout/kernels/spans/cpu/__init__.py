"""Binary trees with scored labelled spans, compiled by numba."""
