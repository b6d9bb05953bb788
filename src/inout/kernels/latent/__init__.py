"""Grammars with latent values: vectors for items, blocks for rules."""
