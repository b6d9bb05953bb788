"""What `inout align` does."""
