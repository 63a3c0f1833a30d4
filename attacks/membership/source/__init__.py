"""Source inference attacks: infer which client holds a sample."""
