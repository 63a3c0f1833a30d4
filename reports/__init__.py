"""The press: tables, figures, pages, from records alone."""
