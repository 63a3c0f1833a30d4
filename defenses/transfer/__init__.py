"""Privacy of a knowledge transfer by answers: noisy votes of a trusted aggregator, and answers that each teacher
randomises.
"""
