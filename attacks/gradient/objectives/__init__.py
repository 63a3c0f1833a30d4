"""What searches for images share: objectives, priors, optimisers and the lots behind an upload."""
