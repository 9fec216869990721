"""What the Docker image starts, without Docker: it needs a token, and answers the health check."""

import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import tophit

SCRIPT = Path(__file__).parents[2] / "docker" / "serve.sh"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment with the command ``tophit``, as in the image."""
    command = tmp_path / "bin" / "tophit"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m tophit.cli "$@"\n')
    command.chmod(0o755)
    without = {name: value for name, value in os.environ.items() if not name.startswith("TOPHIT_TOKEN")}
    return {**without, "PATH": f"{command.parent}:{os.environ['PATH']}", "COLUMNS": "200"}


def test_without_a_token_it_does_not_start(environment: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(["sh", SCRIPT, tmp_path], env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    assert "set TOPHIT_TOKEN: whoever knows it may search" in done.stderr


def test_another_command_runs_instead(environment: dict[str, str]) -> None:
    words = ["sh", SCRIPT, "tophit", "--version"]
    assert subprocess.run(words, env=environment, capture_output=True, text=True).stdout.startswith("tophit ")


@pytest.mark.slow
def test_it_serves_the_index_to_those_with_the_token(
    environment: dict[str, str], pictures: Path, tmp_path: Path
) -> None:
    tophit.index(pictures, "small", out=tmp_path / "index").close()
    token = "a-token-that-is-long-enough-for-a-test"
    words = ["sh", SCRIPT, tmp_path / "index"]
    with subprocess.Popen(
        words, env={**environment, "TOPHIT_TOKEN": token, "TOPHIT_PORT": "0"}, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            address = next(word for word in server.stdout.readline().split() if word.startswith("http"))
            local = address.replace("0.0.0.0", "127.0.0.1")
            assert urllib.request.urlopen(f"{local}ready").status == 200
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(f"{local}about")
            allowed = urllib.request.Request(f"{local}about", headers={"Authorization": f"Bearer {token}"})
            assert urllib.request.urlopen(allowed).status == 200
        finally:
            server.terminate()
