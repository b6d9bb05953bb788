"""Random trees of each sentence."""
