"""Best and k best derivations of a forest given as arrays."""

from inout.kernels.kbest.op import kbest as kbest
from inout.kernels.kbest.op import viterbi as viterbi

__all__ = ["kbest", "viterbi"]
