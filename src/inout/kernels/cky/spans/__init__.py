"""Binary trees scored by their spans, without labels: every span carries one number."""
