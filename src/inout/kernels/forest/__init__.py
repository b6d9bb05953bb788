"""Inside and outside on explicit forests: cpu, gpu and reference tiers behind one op."""
