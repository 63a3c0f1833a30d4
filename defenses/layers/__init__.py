"""Layers: what the layer-wise defenses share: scores of layers, their budgets, the report, the aggregation."""
