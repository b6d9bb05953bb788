"""Semi-Markov chains: labelled segments."""
