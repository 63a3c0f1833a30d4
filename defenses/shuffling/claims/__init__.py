"""Claims behind a shuffler: budgets of clients, amplification, published totals."""
