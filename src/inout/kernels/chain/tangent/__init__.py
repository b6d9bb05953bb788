"""Derivative of a chain's marginals along a direction: products with the Hessian of log Z."""
