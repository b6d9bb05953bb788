"""Compiling kernels ahead of their first use, by solving tiny problems in parallel processes."""
