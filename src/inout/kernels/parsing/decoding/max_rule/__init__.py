"""The tree whose parts are likely, one by one."""
