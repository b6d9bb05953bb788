"""Sentences of a sparse probabilistic grammar that begin with given words."""
