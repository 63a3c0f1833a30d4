"""Implementation checks of the hooks of vertical federations, and of what they release."""
