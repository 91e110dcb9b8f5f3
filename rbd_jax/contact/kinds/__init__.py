"""One module for each kind of constraint."""
