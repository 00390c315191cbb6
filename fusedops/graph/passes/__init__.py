"""What is done to a graph before it is planned."""
