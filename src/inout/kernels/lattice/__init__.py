"""Lattices of contexts, selected while they are walked over."""
