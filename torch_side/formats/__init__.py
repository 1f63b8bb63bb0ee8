"""Checkpoint files that need PyTorch to be read or written: archives of `torch.save`, and those of DCP."""
