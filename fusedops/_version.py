"""The version, for whatever asks for it before the package is there."""

__version__ = "1.1.0.dev0"
