"""Arborescences for GPUs, by Triton: the elimination of `cpu`, one program for each element."""
