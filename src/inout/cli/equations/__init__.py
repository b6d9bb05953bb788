"""The implementation of `inout solve`."""
