"""Configuration: suite files, presets and parts, checked before anything runs."""
