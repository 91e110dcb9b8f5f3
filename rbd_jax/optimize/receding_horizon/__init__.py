"""Controllers that plan over a receding horizon, and the feedback of a plan."""
