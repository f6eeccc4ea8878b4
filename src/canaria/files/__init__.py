"""Result files: reading, verifying, and the schema.

Nothing in a file is trusted: `load` recomputes the bound from the evidence. `Result.save` writes the files.
"""

from canaria.files.read import Stored, read_result
from canaria.files.verify import Check, check, load, read_checked

__all__ = ["Check", "Stored", "check", "load", "read_checked", "read_result"]
