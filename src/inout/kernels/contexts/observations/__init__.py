"""Scores of labels from sparse features of the input, and their gradient."""
