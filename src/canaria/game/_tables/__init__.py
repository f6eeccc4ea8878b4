"""Tables as people keep them: text, JSON, NumPy's and Arrow's files, compressed or not.

Every reader is told which columns to look for and gives back their cells. What a file is, is decided by its
first bytes, never by its name.
"""
