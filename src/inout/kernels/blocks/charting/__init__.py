"""The hypergraph of a sentence under binary rules."""
