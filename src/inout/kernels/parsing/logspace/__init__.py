"""Sparse charts in log space: exact whatever the range, best trees, and slower."""
