"""What `inout context` does: training, tagging, curves of precision and recall."""
