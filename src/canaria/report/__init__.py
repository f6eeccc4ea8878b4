"""What people look at: a result explained, in the terminal and as a page, and charts."""
