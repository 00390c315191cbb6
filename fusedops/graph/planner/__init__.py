"""A graph's steps and their memory."""
