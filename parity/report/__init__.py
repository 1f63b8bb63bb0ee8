"""Records to terminal, JSON, Markdown and HTML, and back from files; renders, never computes."""
