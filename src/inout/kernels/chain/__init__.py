"""Linear chains."""
