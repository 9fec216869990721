"""Make an index, search it, and serve it over HTTP (``pip install 'tophit[serve]'``)."""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import tophit

with tophit.index("photos/", "efficientnet-lite0", out="runs/index") as catalogue:  # or a run instead of a backbone
    query = next(Path("photos").rglob("*.jpg"))
    (hits,) = catalogue.search([query], k=3, where={"label": {"ne": query.parent.name}})
    print("of other classes:", [(hit.metadata["label"], round(hit.score, 3)) for hit in hits])
    print(len(catalogue.index), "images")

command = [sys.executable, "-m", "tophit.cli", "serve", "runs/index", "--port", "0"]
with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
    assert server.stdout is not None
    address = next(word for word in server.stdout.readline().split() if word.startswith("http"))
    body = json.dumps({"ids": [hits[0].id], "k": 3}).encode()
    request = urllib.request.Request(f"{address}search", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        print("like the first of them:", [hit["label"] for hit in json.load(answer)["queries"][0]["results"]])
    server.terminate()
