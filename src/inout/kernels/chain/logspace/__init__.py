"""Linear chains in log space: exact whatever the range of the potentials, and slower."""
