"""Exact numbers of trees."""
