"""Compiled code that packages below the kernels share."""
