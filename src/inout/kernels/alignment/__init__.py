"""Paths through a grid of rows and columns, in layers: alignments of two sequences."""
