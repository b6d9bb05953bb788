"""Factored chains and grammars on a GPU: products of matrices by cuBLAS, in scaled arithmetic."""
