"""Dense weighted grammars: rules as a cube."""
