"""Where results live and what they are called."""
