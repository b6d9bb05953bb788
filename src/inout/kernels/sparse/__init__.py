"""Sparse weighted grammars: CKY over lists of rules, one sentence or many."""
