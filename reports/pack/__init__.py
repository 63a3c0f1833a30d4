"""Evidence packs: what a run measured, in the words and in the order that an assessor of risks asks for."""
