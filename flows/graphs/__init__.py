"""The graphs as plain calls: one run, its student, one arm; and the gate before them."""
