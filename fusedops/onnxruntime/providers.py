"""Execution providers, as ONNX Runtime calls devices: the CPU."""

import warnings
from collections.abc import Sequence

PROVIDERS = ["CPUExecutionProvider"]


def check_providers(providers, provider_options=None):
    """Warns about devices that there are none of here; the rest is as ONNX Runtime checks it."""
    if providers is None:
        return
    if isinstance(providers, str):
        warnings.warn(f"providers is a list: write providers=[{providers!r}]", stacklevel=3)
        providers = [providers]
    if not isinstance(providers, Sequence):
        raise ValueError("'providers' should be a sequence.")
    if provider_options is not None:
        if not isinstance(provider_options, Sequence):
            raise ValueError("'provider_options' should be a sequence.")
        if len(providers) != len(provider_options):
            raise ValueError("'providers' and 'provider_options' should be the same length if both are given.")
    for provider in providers:
        pair = isinstance(provider, tuple) and len(provider) == 2 and isinstance(provider[1], dict)
        name = provider[0] if pair else provider
        if not isinstance(name, str):
            raise ValueError("'providers' values must be either strings or (string, dict) tuples.")
        if name not in PROVIDERS:
            warnings.warn(
                f"Specified provider '{name}' is not in available provider names. Available providers: "
                f"'{', '.join(PROVIDERS)}': fusedops computes on the CPU",
                stacklevel=3,
            )
