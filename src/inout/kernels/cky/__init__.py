"""Context-free charts: log Z of binary trees, its derivatives, best trees and samples."""
