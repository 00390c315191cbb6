"""Errors of networks. What else is raised while one is read or planned is a fault of this library, and shows as it is."""


class BadNode(ValueError):
    """A node lacks an input or attribute, or has one that its operator does not take."""


class NoSymbolic(ValueError):
    """What is computed needs a plain int where a size is open."""
