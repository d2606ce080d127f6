"""The data contract, under the RFC's import paths."""
