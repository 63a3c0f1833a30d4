"""Checks of whole messages: what one unit moves in them, on ordinary and on extreme rows."""
