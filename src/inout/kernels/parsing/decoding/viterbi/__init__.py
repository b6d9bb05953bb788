"""The best tree of each sentence."""
