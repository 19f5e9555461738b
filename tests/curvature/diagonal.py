"""A diagonal matrix that the tests can change, as an operator of the eigen-solver."""

from contextlib import nullcontext

import torch

SIZE = 40


class Diagonal:
    """diag(d) seen as a Gauss-Newton matrix: an image is sqrt(d) v."""

    image_cost = 0.5
    product_cost = 0.5
    uses_graphs = False
    dense = False

    def __init__(self):
        self.d = torch.linspace(0.1, 1.0, SIZE).double()
        self.objects = {}

    def images(self, vectors):
        return vectors * self.d.sqrt()

    def weighted(self, images):
        return images

    def gram(self, vectors, weighted, images):
        return weighted @ images.T

    def products(self, weighted):
        return weighted * self.d.sqrt(), torch.zeros(len(weighted), 1).double()

    def tensor_cores(self, allowed):
        return nullcontext()

    def to_host(self, name, function, *arguments):
        return function(*arguments).numpy()

    def cached(self, name, make):
        if name not in self.objects:
            self.objects[name] = make()
        return self.objects[name]
