"""How what fusedops needs for some of its functions is installed."""


def command(extra: str) -> str:
    """The command that installs an extra of pyproject.toml, for errors: in a checkout, as no index has fusedops yet."""
    return f"pip install -e '.[{extra}]' in a checkout of fusedops"
