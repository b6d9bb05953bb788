"""The best tree of a block graph, and random ones."""
