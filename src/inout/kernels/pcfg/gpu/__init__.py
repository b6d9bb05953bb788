"""Dense weighted grammars, for GPUs, by Triton."""
