"""The demonstration: sentences that mean several things, surprisals, and a grammar that learns."""
