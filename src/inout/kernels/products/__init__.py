"""Matrix products inside compiled loops, in pieces small enough for one thread."""
