"""In what order: loops and calls, no mathematics and no file formats."""
