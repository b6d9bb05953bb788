"""Sentences under a latent-variable grammar."""
