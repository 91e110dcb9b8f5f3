"""Ready problems of trajectory optimization, each with a start and a first guess."""
