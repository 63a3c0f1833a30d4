"""Models as functions of one flat parameter vector, with per-sample gradients."""
