"""Derivative of a chart's marginals along a direction: products with the Hessian of log Z."""
