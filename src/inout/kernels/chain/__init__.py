"""Linear chains: log Z, marginals and their derivative, best paths and samples."""
