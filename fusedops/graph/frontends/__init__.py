"""What networks are read from."""
