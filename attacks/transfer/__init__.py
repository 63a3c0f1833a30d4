"""Attacks on a knowledge transfer from teachers to a student: on one teacher's votes, and on the samples behind the
student's labels.
"""
