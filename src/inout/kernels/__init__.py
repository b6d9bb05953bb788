"""Compiled and vectorised algorithms on plain arrays; they know nothing of labels or relations."""
