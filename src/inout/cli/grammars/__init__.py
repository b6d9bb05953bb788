"""The implementation of the commands for grammars, sentences and treebanks."""
