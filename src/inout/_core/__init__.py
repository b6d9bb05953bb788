"""Errors, checks and small helpers that everything else stands on."""
