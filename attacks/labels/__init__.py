"""Label inference attacks: infer how often each label occurs in a client's lot."""
