"""What identifies an experiment: a frozen recipe, and where it runs."""
