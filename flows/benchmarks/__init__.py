"""A benchmark's cells: which are missing, how they are run, what is shown of them."""
