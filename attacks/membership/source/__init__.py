"""Source inference: which client a sample belongs to."""
