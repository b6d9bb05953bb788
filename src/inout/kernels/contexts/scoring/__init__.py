"""From the histories of contexts to the scores of edges."""
