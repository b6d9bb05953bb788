"""Which elements of a column become contexts."""
