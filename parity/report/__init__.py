"""Records to terminal and JSON; renders, never computes."""
