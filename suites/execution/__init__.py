"""Execution: carry a planned run out in processes, and resume it."""
