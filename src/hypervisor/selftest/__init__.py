"""The self-test: tries to break a scratch store on this host, and checks that nothing was lost.

Each part is a module with a `run` function; `parts.py` lists them. The project's own torture tests
use the same parts.
"""
