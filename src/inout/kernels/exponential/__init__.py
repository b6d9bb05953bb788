"""An exponential that the compiler can turn into vector instructions."""
