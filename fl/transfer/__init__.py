"""Transfer by answers: clients are teachers that label public samples, and a student trains on the released labels."""
