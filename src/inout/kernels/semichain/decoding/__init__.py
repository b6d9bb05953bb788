"""Best, k best and sampled segmentations of semi-Markov chains."""
