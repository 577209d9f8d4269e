"""Built-in skills: recipes for a batch that `hv run NAME PATH` knows by name."""
