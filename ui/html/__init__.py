"""HTML and SVG that more than one tab shows."""
