"""Agent programs: their homes, what they are given, where they are found, how they are heard."""
