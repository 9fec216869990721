"""The package as it would be published: built, installed into an empty environment, and used as the README says."""

import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import tophit

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", out, ROOT], check=True, capture_output=True)
    archives = sorted(map(str, out.iterdir()))
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *archives], check=True, capture_output=True)
    (found,) = out.glob("*.whl")
    return found


@pytest.mark.slow
def test_the_wheel_has_what_is_not_python_too(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    assert {"tophit/py.typed", "tophit/recipes/head.yaml", "tophit/serve/page/index.html"} <= held
    inside = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*") if path.is_file()}
    assert {name for name in inside if "__pycache__" not in name} <= held
    assert not [name for name in held if name.startswith(("tests/", "examples/"))]


@pytest.mark.slow
def test_in_an_empty_environment_the_ten_lines_of_the_readme_run(wheel: Path, working: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty" / "bin" / "python"
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    install = [python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel]
    subprocess.run(install, check=True, env=outside, cwd=tmp_path)
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    (working / "ten_lines.py").write_text(block[1])
    done = subprocess.run([python, "ten_lines.py"], env=outside, cwd=working, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "recall@1" in done.stdout
    assert "photos/fish/" in done.stdout
    where = "import tophit; print(tophit.__version__, tophit.__file__)"
    said = subprocess.run([python, "-c", where], env=outside, cwd=working, capture_output=True, text=True).stdout
    assert said.startswith(tophit.__version__)
    assert str(tmp_path) in said
