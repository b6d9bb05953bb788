"""Derivative of the marginals along a direction: products with the Hessian of log Z."""
