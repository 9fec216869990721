"""The examples run as they are, in a folder with small pictures; the notebooks too, and hold what they printed."""

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tophit import registry

EXAMPLES = Path(__file__).parents[1] / "examples"
_OWN_TEST = {"fine_tune_transformer", "quickstart"}  # the second is on the README, whose code runs
_SLOW = {"compare_losses", "index_search_serve"}  # they start processes
SCRIPTS = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in _SLOW else [])
    for path in sorted(EXAMPLES.glob("*.py"))
    if path.stem not in _OWN_TEST
]
SAYS = {
    "compare_losses": "To use it: tophit",
    "evaluate_embeddings": "p = 0.0",
    "index_search_serve": "like the first of them: [",
    "name_new_class": "with three fish: ",
    "lightning_module": "'recall@1': '",
    "own_loop": "epoch 5: loss",
    "own_loss": "steps in",
    "own_recipe": "1 recall@1",
    "with_pytorch_metric_learning": "with its memory:",
}


@pytest.fixture(autouse=True)
def forget_what_was_registered() -> Iterator[None]:
    """What an example registers is its own."""
    yield
    for key in [key for key, entry in registry._registered.items() if entry.module == "__main__"]:
        del registry._registered[key]


@pytest.mark.filterwarnings("ignore")  # of Lightning: few workers, few batches
@pytest.mark.parametrize("script", SCRIPTS)
def test_an_example_runs(
    script: Path, working: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    assert SAYS[script.stem] in capfd.readouterr().out


def test_a_transformer_is_fine_tuned(
    working: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    import transformers

    small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.Dinov2Config(**small, image_size=56, patch_size=14)
    transformers.AutoModel.from_config(config).save_pretrained(tmp_path)
    sizes = {"size": {"shortest_edge": 64}, "crop_size": {"height": 56, "width": 56}, "do_center_crop": True}
    colours = {"image_mean": [0.5] * 3, "image_std": [0.2] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**sizes, **colours}))
    monkeypatch.setattr(sys, "argv", ["fine_tune_transformer.py", str(tmp_path)])
    runpy.run_path(str(EXAMPLES / "fine_tune_transformer.py"), run_name="__main__")
    assert "best epoch 1" in capfd.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("notebook", sorted(EXAMPLES.glob("notebooks/*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_runs_and_holds_what_it_printed(notebook: Path, tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    kept = nbformat.read(notebook, 4)
    made = nbformat.read(notebook, 4)
    NotebookClient(made, timeout=900, resources={"metadata": {"path": str(tmp_path)}}).execute()
    for before, after in zip(kept.cells, made.cells, strict=True):
        if before.cell_type == "code":
            assert [each.output_type for each in before.outputs] == [each.output_type for each in after.outputs]
    assert notebook.stat().st_size < 300_000
    assert str(Path.home()) not in notebook.read_text(encoding="utf-8")
