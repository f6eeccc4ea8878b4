"""Canaries: their designs, the witnesses beside them, and how rows are stated to take part."""
