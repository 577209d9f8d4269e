"""Settings for tests that are not about the governor: it would react to everything on this
machine."""

UNGOVERNED = """
[governor]
strategy = "parallel"
cpu_warning = 1.0
cpu_danger = 1.0
ram_warning = 1.0
ram_danger = 1.0
ram_emergency = 1.0
stall = 100
ceiling = 1.0
"""
