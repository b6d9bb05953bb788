"""Single labellings of linear chains: best, k best, samples."""
