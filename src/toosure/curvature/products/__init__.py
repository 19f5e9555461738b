"""Products of the curvature matrices with vectors, without forming a matrix."""
