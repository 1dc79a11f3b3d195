"""Tensors in, tensors out: divergences, their reductions and chunked evaluation."""
