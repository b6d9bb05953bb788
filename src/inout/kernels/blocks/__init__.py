"""Inside and outside passes over hypergraphs: items hold vectors, rules hold blocks."""
