"""What the commands about grammars, sentences and treebanks do."""
