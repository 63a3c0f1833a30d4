"""What defenses that clip to an L2 norm and add Gaussian noise share: their fields, and the claim that most sign."""
