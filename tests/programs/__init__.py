"""Whole programs that train with differential privacy, as people write them; none of them knows of canaria."""
