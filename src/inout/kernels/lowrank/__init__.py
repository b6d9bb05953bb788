"""Chains and grammars whose table of transitions or rules is a product of factors."""
