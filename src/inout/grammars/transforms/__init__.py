"""Grammars in other forms with the same trees, and the way back."""
