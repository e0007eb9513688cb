"""What the page says, in each language: one table for Gradio's labels, for Python and for our scripts."""
