"""The demonstration: ambiguous sentences, surprisals, and a grammar that learns."""
