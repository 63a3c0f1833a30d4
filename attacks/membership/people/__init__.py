"""Membership of clients and of users, where the attacks above ask about single samples."""
