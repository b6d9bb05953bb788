"""Projective dependency trees, for GPUs, by Triton."""
