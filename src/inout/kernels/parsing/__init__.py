"""Sparse charts of context-free grammars: inside, outside, best trees."""
