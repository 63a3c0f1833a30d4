"""Output formats: HTML page, Markdown, LaTeX, CSV, terminal; written atomically."""
