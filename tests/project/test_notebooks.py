"""Every notebook runs from its first cell to its last."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("path", NOTEBOOKS or [None], ids=lambda p: p.stem if p else "none")
def test_notebook(path):
    if path is None:
        pytest.skip("no notebooks")
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}
    )
    client.execute()
