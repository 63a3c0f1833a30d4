"""Layer-wise defenses: scores of layers, their budgets, the noised report and the aggregation."""
