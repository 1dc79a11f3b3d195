"""Decoders behind one contract: the toy and Hugging Face models."""
