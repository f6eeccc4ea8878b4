"""How fast, how tight and how valid canaria is, beside what people use now; `make bench` runs it."""
