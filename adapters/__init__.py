"""Adapters: foreign trainings and mechanisms as something that is watched, played back and audited."""
