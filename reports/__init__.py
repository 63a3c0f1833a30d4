"""Reports: tables, figures and pages, made from a run's records alone."""
