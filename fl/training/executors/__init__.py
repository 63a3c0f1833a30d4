"""The executors: each file holds one way to compute the clients' local training, as a class that has the file's
name.
"""
