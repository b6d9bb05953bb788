"""Linear chains, for GPUs, by Triton."""
