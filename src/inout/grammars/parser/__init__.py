"""Sentences under grammars of any shape: the parser and all that it answers with."""
