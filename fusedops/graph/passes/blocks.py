"""Convolutions in a row that one kernel computes without an image between them."""


def run(context):
    pass
