"""Plans that are kept and run."""
