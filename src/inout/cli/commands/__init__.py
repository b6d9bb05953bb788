"""One file for each command: its options and its help. What it does is imported when it runs."""
