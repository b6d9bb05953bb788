"""Trees from the charts of sparse grammars: best, k best, sampled, likely in parts; counts."""
