"""The trees of weighted grammars with the highest scores."""
