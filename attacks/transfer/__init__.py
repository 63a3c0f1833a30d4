"""Attacks on a transfer by answers: on one teacher's votes, and on the samples behind the student's labels."""
