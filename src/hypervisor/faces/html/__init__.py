"""Pages for a browser: self-contained, readable without scripts, nothing loaded from anywhere."""
