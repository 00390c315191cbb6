"""What the other folders share: checks of arguments, errors, files, times. Nothing here is public."""
