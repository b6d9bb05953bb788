"""Semi-Markov chains, for GPUs, by Triton."""
