"""Adapters: they turn trainings and mechanisms of other libraries into systems that can be watched, played back and
audited.
"""
