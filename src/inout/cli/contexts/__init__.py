"""The implementation of `inout context`: training, tagging, precision-recall curves."""
