"""Extreme eigenpairs of a symmetric operator, of which it knows only the protocol in `operator`.

From the bottom up: `vectors` and `small_eigen` (algebra), `basis` (the protocol), `eager_basis` and
`graph_basis` (the two kinds of basis), `solver` (one solve), `warm_eigenpair` (one eigenpair along
training).
"""
