"""The parser: sentences under grammars of any shape."""
