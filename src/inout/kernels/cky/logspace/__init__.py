"""Charts of weighted grammars in log space: exact whatever the range, and slower."""
