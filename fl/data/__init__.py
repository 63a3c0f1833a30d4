"""Data sets: labelled images, tables and receipts, with their sensitive regions where known."""
