"""Runs that are disturbed on purpose, and what must be left of them."""
