"""Explicit forests: hypergraphs in arrays."""
