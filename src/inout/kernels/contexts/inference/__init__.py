"""Passes over a lattice whose contexts are selected."""
