"""Named shapes of the dense families' inputs and outputs."""

from __future__ import annotations

from jaxtyping import Float, Inexact, Int
from torch import Tensor

# Of each batch element.
Lengths = Int[Tensor, " b"]
PerElement = Float[Tensor, " b"]

# Chains: transitions are shared by all elements (bt = 1) or not, by all positions (nt = 1) or not.
Emissions = Float[Tensor, "b n s"]
Transitions = Float[Tensor, "bt nt s s"]
# Of chains and segmentations.
Labels = Int[Tensor, "b n"]

# Segments: last position, width - 1, previous label, label.
Segments = Float[Tensor, "b n w s s"]

# Trees whose spans have one score, and those with labels.
Spans = Float[Tensor, "b n n"]
LabelledSpans = Float[Tensor, "b n n s"]

# Dependency trees: head, from 0 for the root, and dependent; with the dependent between them.
Arcs = Float[Tensor, "b h n"]
Siblings = Float[Tensor, "b n n n"]
# 0 for the root, j for the j-th word, -1 in the padding.
Heads = Int[Tensor, "b n"]

# Grammars: rules are shared by all elements (bs = 1) or not.
Root = Float[Tensor, "b nt"]
Rules = Float[Tensor, "bs nt s s"]
Words = Float[Tensor, "b n pt"]
# Symbols of spans, -1 elsewhere.
Trees = Int[Tensor, "b n n"]

# Generating functions: lanes of each element, and the centres of K functions.
Generated = tuple[Inexact[Tensor, "l b"], Inexact[Tensor, "k b"]]
