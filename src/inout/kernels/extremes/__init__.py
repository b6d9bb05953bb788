"""Largest and smallest of many numbers, in vector instructions."""
