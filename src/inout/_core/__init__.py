"""Errors, checks and small helpers that everything else uses."""
