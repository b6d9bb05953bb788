"""Single trees of weighted grammars: best and samples."""
