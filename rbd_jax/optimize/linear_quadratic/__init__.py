"""Linear-quadratic approximations of a problem, and the sweeps that solve them."""
