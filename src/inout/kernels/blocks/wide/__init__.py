"""Passes over block graphs where each entry of each vector has an exponent of its own."""
