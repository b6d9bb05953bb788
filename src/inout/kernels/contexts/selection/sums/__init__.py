"""The mass of elements and contexts of a column."""
