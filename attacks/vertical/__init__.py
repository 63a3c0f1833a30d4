"""Attacks of one party of a vertical federation on the labels or the columns of another party."""
