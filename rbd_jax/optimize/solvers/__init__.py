"""Methods that find a trajectory, and the derivatives of what they find."""
