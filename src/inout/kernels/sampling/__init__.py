"""Exact samples of the derivations of a forest given as arrays."""

from inout.kernels.sampling.op import alias_tables as alias_tables
from inout.kernels.sampling.op import sample as sample

__all__ = ["alias_tables", "sample"]
