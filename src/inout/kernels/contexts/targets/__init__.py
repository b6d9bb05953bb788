"""Passes over the paths of a lattice that write given strings."""
