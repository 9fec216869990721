"""Write requirements-hashed.txt: every package of constraints.txt with the SHA-256 of the file that pip chooses here.

``make hashes`` runs it. pip itself picks the files and computes the digests (``pip install --dry-run --report``), so
the list holds for this system and this version of Python; run it again for another.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "requirements-hashed.txt"
HEAD = """\
# Made by make hashes; do not edit. Files for {system}, Python {python}, with their SHA-256:
#   pip install --require-hashes -r requirements-hashed.txt && pip install --no-deps -e .
"""


def report() -> dict:
    """Return pip's report of what it would install."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        wanted = ["--dry-run", "--ignore-installed", "--no-deps", "--report", path, "-r", ROOT / "constraints.txt"]
        subprocess.run([*pip, *wanted], check=True)
        return json.loads(path.read_text(encoding="utf-8"))


def lines(found: dict) -> list[str]:
    """Return the requirements with their hashes, sorted by name; pip's report has no package without one."""
    made = {}
    for each in found["install"]:
        name, version = each["metadata"]["name"], each["metadata"]["version"].split("+")[0]
        made[name.lower()] = (
            f"{name}=={version} --hash=sha256:{each['download_info']['archive_info']['hashes']['sha256']}"
        )
    return [made[name] for name in sorted(made)]


def main() -> None:
    """Write the file."""
    found = report() if len(sys.argv) < 2 else json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    facts = found["environment"]
    head = HEAD.format(system=f"{facts['sys_platform']} {facts['platform_machine']}", python=facts["python_version"])
    made = lines(found)
    OUT.write_text(head + "\n".join(made) + "\n", encoding="utf-8")
    print(f"{OUT.name}: {len(made)} packages")


if __name__ == "__main__":
    main()
