"""Posteriors of binary rules over spans, only those above a threshold."""
