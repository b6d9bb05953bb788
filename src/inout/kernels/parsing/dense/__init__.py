"""Scaled charts of many short sentences at once, no symbol left out: for small grammars."""
