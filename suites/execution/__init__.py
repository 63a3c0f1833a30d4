"""Execution: carries out a planned run in worker processes, and resumes an interrupted one."""
