"""What is minimized: dynamics, costs, constraints, and the local models that a problem makes."""
