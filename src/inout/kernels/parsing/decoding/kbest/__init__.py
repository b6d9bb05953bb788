"""The k best trees of each sentence."""
