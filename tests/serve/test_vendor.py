"""What the page ships of others is what their packages hold, with their licences, and asks no other host."""

import hashlib
import json
import re

from tophit.serve.app import PAGE


def test_vendored_files_are_those_of_the_manifest() -> None:
    vendor = PAGE / "vendor"
    told = json.loads((vendor / "manifest.json").read_text())
    assert {path.name for path in vendor.glob("*.mjs")} == set(told)
    for name, facts in told.items():
        assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == facts["sha256"], name
        assert facts["version"]
        assert "opyright" in (vendor / facts["licence_file"]).read_text()


def test_the_page_names_no_other_host() -> None:
    own = [path for path in PAGE.iterdir() if path.suffix in (".js", ".css", ".html")]
    assert len(own) > 8
    for path in own:
        addresses = re.findall(r"""(?:https?:)?//[a-z0-9.-]+\.[a-z]+""", path.read_text())
        assert addresses == [], path
        assert len(path.read_text().splitlines()) < 400
    markup = (PAGE / "index.html").read_text()
    assert "style=" not in markup
    assert "onclick" not in markup
