"""The implementation of `inout solve` and `inout programs`."""
