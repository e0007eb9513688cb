"""The studio in the browser: the only package that knows Gradio."""
