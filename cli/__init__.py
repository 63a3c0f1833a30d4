"""The command line: one file per command, the console, the errors, and the pytest plugin."""
