"""One file per command: its options and help. The implementation is imported when it runs."""
