"""Checkpoints: the last few are kept, damage is found by the checksum, and a full disk costs nothing that was good."""

import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from tests.training.test_train import small_recipe

from tophit.errors import TophitError, UsageError
from tophit.models import build_embedder
from tophit.progress import View
from tophit.training import Run, checkpoints, resume, train
from tophit.training.checkpoints import Checkpoints
from tophit.training.loop import _Training


class Notes(View):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)


def test_the_last_ones_are_kept_in_order(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path, keep=3)
    assert kept.load() is None
    for step in range(5):
        kept.save({"step": step, "tensor": torch.full((4,), float(step))})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-1.pt", "checkpoint-2.pt", "checkpoint.pt"]
    assert [torch.load(kept.path(age))["step"] for age in range(3)] == [4, 3, 2]
    state = kept.load()
    assert state is not None
    assert torch.equal(state["tensor"], torch.full((4,), 4.0))


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped"])
def test_a_damaged_one_is_refused_and_the_one_before_is_used(tmp_path: Path, damage: str) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in range(2):
        checkpoints.save({"step": step, "tensor": torch.ones(1000)})
    content = bytearray(checkpoints.path().read_bytes())
    content[len(content) // 2] ^= 1
    whole = bytes(content)
    checkpoints.path().write_bytes({"cut": whole[:-10], "empty": b"", "flipped": whole}[damage])
    notes: list[str] = []
    state = checkpoints.load(notes.append)
    assert state is not None
    assert state["step"] == 0
    reason = "its checksum does not match its content" if damage == "flipped" else "it is cut off"
    assert f"{checkpoints.path()} can't be read ({reason}" in notes[0]
    assert notes[0].endswith("The previous one, checkpoint-1.pt, is used instead.")
    checkpoints.path(1).write_bytes(b"x")
    with pytest.raises(TophitError, match=r"No earlier one is intact; delete it to start the run again"):
        checkpoints.load()


def same_weights(one: Path, other: Path) -> bool:
    name = Path("best") / "weights.safetensors"
    return (one / name).read_bytes() == (other / name).read_bytes()


def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(pictures: Path, tmp_path: Path) -> None:
    recipe = small_recipe(pictures, schedule={"epochs": 4}, optimizer={"ema": 0.8, "clip": 1.0})
    train(recipe, tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "damaged")
    (tmp_path / "damaged" / "result.json").unlink()
    last = tmp_path / "damaged" / "checkpoint.pt"
    last.write_bytes(last.read_bytes()[:-200])
    view = Notes()
    resume(tmp_path / "damaged", view)
    assert any("checkpoint-1.pt, is used instead" in note for note in view.notes)
    assert same_weights(tmp_path / "whole", tmp_path / "damaged")
    logs = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("whole", "damaged")]
    assert logs[0] == logs[1]


class FillingUp:
    """A file whose disk is full after a few writes: then they go to the device where the system says so."""

    def __init__(self) -> None:
        self.full, self.writes = os.open("/dev/full", os.O_WRONLY), 0

    def __enter__(self) -> "FillingUp":
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self.full)

    def write(self, data: bytes) -> int:
        self.writes += 1
        return len(data) if self.writes <= 3 else os.write(self.full, data)

    def flush(self) -> None: ...


def test_a_full_disk_keeps_the_last_good_checkpoint_and_says_so(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small_recipe(pictures, schedule={"epochs": 4})
    train(recipe, tmp_path / "whole")
    written: list[int] = []
    save, real = torch.save, checkpoints.replace_file

    @contextmanager
    def full_from_the_third_on(path: Path) -> Iterator[Any]:
        if len(written) < 2:
            with real(path) as temporary:
                yield temporary
        else:
            yield SimpleNamespace(open=lambda mode: FillingUp())

    def counted(state: Any, file: Any) -> None:
        save(state, file)
        written.append(state["position"]["step"])

    monkeypatch.setattr(torch, "save", counted)
    monkeypatch.setattr(checkpoints, "replace_file", full_from_the_third_on)
    with pytest.raises(
        TophitError, match=r"is full\. The last good checkpoint is in .* tophit train --resume"
    ) as error:
        train(recipe, tmp_path / "full")
    assert error.value.exit_code == 1
    monkeypatch.undo()
    state = Run(tmp_path / "full").load_checkpoint()
    assert state is not None
    assert state["position"]["step"] == written[1]
    assert not list((tmp_path / "full").glob(".checkpoint*"))
    resume(tmp_path / "full")
    assert same_weights(tmp_path / "whole", tmp_path / "full")


@pytest.mark.parametrize(
    "sections",
    [
        {"optimizer": {"ema": 0.9}, "memory": {"size": 20, "start": 2}, "loss": {"name": "contrastive"}},
        {"precision": "fp16", "schedule": {"epochs": 4, "decay": "step", "step_epochs": 2, "lr_warmup_epochs": 0.5}},
        {"precision": "bf16", "batches": {"chunk": 2}, "optimizer": {"name": "sgd", "clip": 0.5}},
    ],
    ids=["average-memory", "fp16-step", "bf16-chunks-sgd"],
)
def test_every_part_of_the_state_is_restored(
    pictures: Path, tmp_path: Path, sections: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the middle of an epoch, a run ends bit for bit as one that was not."""
    precision = sections.pop("precision", None)
    fields = small_recipe(pictures, **{"schedule": {"epochs": 4}, **sections}).model_dump(mode="json")
    sections["precision"] = precision
    recipe = type(small_recipe(pictures)).model_validate(fields | ({"precision": precision} if precision else {}))
    train(recipe, tmp_path / "whole")
    learn, seen = _Training._learn_step, []

    def stops_in_the_third_epoch(self: Any, batch: Any) -> None:
        learn(self, batch)
        seen.append(1)
        if len(seen) == 5:
            self.position.step += 1
            self.position.batch += 1
            self._save()
            raise KeyboardInterrupt

    monkeypatch.setattr(_Training, "_learn_step", stops_in_the_third_epoch)
    with pytest.raises(TophitError, match="Stopped at step 5"):
        train(recipe, tmp_path / "stopped")
    monkeypatch.undo()
    resume(tmp_path / "stopped")
    assert same_weights(tmp_path / "whole", tmp_path / "stopped")
    states = [Run(tmp_path / name).load_checkpoint() for name in ("whole", "stopped")]
    for part in ("embedder", "method", "average", "engine", "random"):
        torch.testing.assert_close(states[0][part], states[1][part], rtol=0, atol=0)
    results = [json.loads((tmp_path / name / "result.json").read_text())["test"] for name in ("whole", "stopped")]
    assert results[0] == results[1]


def test_weights_that_are_not_finite_are_not_saved(pictures: Path, tmp_path: Path) -> None:
    recipe = small_recipe(
        pictures, optimizer={"head": {"lr": 1e30}, "backbone": {"lr": 1e30}}, checkpoint={"minutes": 0}
    )
    with pytest.raises(TophitError, match=r"The loss became|The weights became infinite or NaN"):
        train(recipe, tmp_path / "run")
    state = Run(tmp_path / "run").load_checkpoint()
    assert state is None or all(bool(value.isfinite().all()) for value in state["embedder"].values())


def test_a_second_process_in_a_run_s_folder_is_refused(pictures: Path, tmp_path: Path) -> None:
    recipe = small_recipe(pictures, schedule={"epochs": 1})
    holder = f"process {os.getpid()} on {socket.gethostname()} is training there"
    with Run(tmp_path / "run").held(), pytest.raises(UsageError, match=holder):
        train(recipe, tmp_path / "run")
    train(recipe, tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    with Run(tmp_path / "run").held(), pytest.raises(UsageError, match=holder):
        resume(tmp_path / "run")
    resume(tmp_path / "run")
    assert not (tmp_path / "run" / ".in-progress").exists()


def test_weights_on_a_full_disk_are_the_system_s_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(state: Any, path: Path) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(OSError, match="No space left on device") as error:
        build_embedder("features/6", dim=4).save(tmp_path)
    assert checkpoints.is_disk_full(error.value)
