"""Many episodes at once, each as if alone."""
