"""Binary trees with scored labelled spans."""
