"""How good a student is, and how sure we are."""
