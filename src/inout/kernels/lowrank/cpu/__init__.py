"""The compiled passes of chains and grammars given by factors."""
