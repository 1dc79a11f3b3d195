"""Which target positions are trained."""
