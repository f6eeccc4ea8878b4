"""Run the notebooks, each in a fresh kernel and an empty folder, and store them with their outputs.

Run by `make notebooks`. Edit a notebook in Jupyter, then run this: it leaves no trace of machine and time.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).parent.parent / "notebooks"
SECONDS = 300
"""How long a cell may take."""
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def executed(path: Path) -> NotebookNode:
    """The notebook after a run from its first cell to its last."""
    notebook = nbformat.read(path, as_version=4)
    with TemporaryDirectory() as folder:
        where = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=SECONDS, resources=where, record_timing=False).execute()
    return cleaned(notebook)


def cleaned(notebook: NotebookNode) -> NotebookNode:
    """Without whatever differs from machine to machine and from run to run."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for place, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{place}", nbformat.from_dict({})
        for output in cell.get("outputs", []):
            if "text/html" in output.get("data", {}):
                output.data.pop("text/plain", None)  # the repr of a result holds versions and the date
    nbformat.validate(notebook)
    return notebook


def main() -> None:
    for path in sorted(FOLDER.glob("*.ipynb")):
        nbformat.write(executed(path), path)


if __name__ == "__main__":
    main()
