"""The dashboard: pages of a running store, rendered here and kept current in the browser."""
