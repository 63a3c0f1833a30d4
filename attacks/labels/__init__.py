"""Label inference: which labels a client trained on."""
