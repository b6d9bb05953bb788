"""Reified context models: selection of contexts and inference in the lattice that they form."""
