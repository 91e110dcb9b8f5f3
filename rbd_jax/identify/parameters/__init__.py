"""What to learn: charts of parameters, physical consistency, and the vector of all unknowns."""
