"""A new class without training: add three photos of it to the index, and the next photo is named.

Needs a folder photos/ with one folder per class, at least eight of them, one called fish, and a photo query.jpg of a
fish that is not in it. The model is a pretrained backbone, which has learned none of your classes.
"""

from pathlib import Path

import tophit
from tophit.data.manifest import ImageRow

with tophit.index("photos", "efficientnet-lite0", out="runs/known.index") as known:
    assert known.calibration is not None  # from the labels of the photos themselves
    print(*known.calibration.sentences(), sep="\n")

    # Pretend that nobody has seen a fish yet.
    fish = [item for item in known.index.items() if item.metadata["label"] == "fish"]
    known.index.delete([item.id for item in fish])
    (before,) = known.name(["query.jpg"])
    print("without fish:", before.sentence())

    # Three photos are enough; nothing is trained.
    known.add([ImageRow(Path(item.metadata["path"]), "fish") for item in fish[:3]])
    (after,) = known.name(["query.jpg"])
    print("with three fish:", after.sentence())
    for hit in after.evidence:
        print(f"  {hit.score:.2f} {hit.metadata['label']}: {Path(hit.metadata['path']).name}")
