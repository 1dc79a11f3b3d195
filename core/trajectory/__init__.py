"""What was sampled: tokens, typed spans, masks and their alignment to a teacher."""
