"""The strings that contexts stand for: their order, which are equal, which goes into which."""
