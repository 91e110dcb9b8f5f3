"""Ready environments for policies: a cart-pole, walkers, and a robot that stands up."""
