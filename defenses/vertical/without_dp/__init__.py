"""Defenses of vertical federations that claim no differential privacy, and the undefended federation."""
