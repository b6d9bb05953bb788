"""Single trees of weighted grammars: best, k best, samples, and their rules."""
