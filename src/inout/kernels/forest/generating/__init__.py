"""Generating functions of additive functions on explicit forests: cpu and reference tiers."""
