"""Implementation checks of the hooks (methods that the engine calls) of defenses in vertical federations, and of what
these hooks release.
"""
