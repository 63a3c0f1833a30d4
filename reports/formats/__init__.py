"""Output formats: HTML page, Markdown, LaTeX, CSV and terminal; files are written atomically."""
