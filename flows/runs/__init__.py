"""What surrounds a run: what it takes from outside, its plan, and what is told of it."""
