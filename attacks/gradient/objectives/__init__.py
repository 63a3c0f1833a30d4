"""Parts shared by attacks that search for images: objectives, priors, optimisers and the lots behind an upload."""
