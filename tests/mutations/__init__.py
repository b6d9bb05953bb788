"""Faults that were planted once, and proof that the default tier of the tests finds each."""
