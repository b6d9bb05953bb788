"""Compiling kernels ahead of their first use: tiny problems that need them, solved in processes."""
