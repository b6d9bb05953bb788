"""Projective dependency trees: log Z, derivatives, best trees, samples."""
