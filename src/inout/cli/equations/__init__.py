"""What `inout solve` and `inout programs` do."""
