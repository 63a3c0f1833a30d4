"""Defenses that claim no differential privacy, and the undefended federation."""
