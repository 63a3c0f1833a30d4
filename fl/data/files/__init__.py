"""Readers of data sets that users bring along, one file per format; nothing in such a data set is run as code."""
