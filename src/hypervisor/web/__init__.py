"""Pages for a browser: self-contained, readable without scripts, nothing loaded from anywhere.

Templates are in `templates/`, styles and scripts in `static/`; `rendering` puts them together.
"""
