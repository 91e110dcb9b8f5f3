"""What torques depend on linearly: regressors, base parameters, and convex fits."""
