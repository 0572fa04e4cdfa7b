"""The game for other frameworks. Each module imports its framework, so nothing here is imported by the rest of `aske`."""
