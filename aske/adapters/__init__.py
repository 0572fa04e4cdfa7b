"""The game for other frameworks. Each module imports its framework: nothing else of `aske` imports them."""
