"""Files people have that need PyTorch to be read."""
