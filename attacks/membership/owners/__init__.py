"""Membership attacks on clients and users, where the other attacks score single samples."""
