"""Paths through a grid, and transducers' joiners, for GPUs, by Triton."""
