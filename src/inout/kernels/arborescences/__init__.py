"""Non-projective dependency trees: arborescences of a graph, by the matrix-tree theorem."""
