"""Products of the curvature matrices with vectors, without forming a matrix.

From the bottom up: `functional_model` (a model as a function of its parameters), `layer_calls` and
`jacobian_products` (one linearised forward pass), `chunked_model` (all data, chunk by chunk),
`loss_hessian` (H_z at the outputs), `loss_curvature` (G, H and F), `input_subspace` (the same in
few directions of the inputs). Beside them: `cuda_graphs`, `precision`, `forward_mode`.
"""
