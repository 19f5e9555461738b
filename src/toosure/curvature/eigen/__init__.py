"""Extreme eigenpairs of a symmetric operator: bases, solver, warm start."""
