"""Programs that stand in for agents: see tests/support/standin.py."""
