"""What claims behind a shuffler rest on: budgets of clients, amplification, published totals."""
