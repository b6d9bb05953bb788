"""Strips of spans of the same width, side by side."""
