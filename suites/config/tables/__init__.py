"""The tables and keys of a suite file, which are checked before anything runs."""
