"""Semi-Markov chains: log Z, marginals and their derivative, best segmentations and samples."""
