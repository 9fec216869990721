"""From a folder of images to a search. ``photos/`` has one folder per class."""

import tophit

result = tophit.train("photos/", out="runs/quickstart")  # seconds to minutes on a CPU
print(result)  # how well images of unseen classes are found, before and after

catalogue = tophit.index("photos/", result, out="runs/quickstart/index")
for hit in catalogue.search(["query.jpg"], k=5)[0]:
    print(hit.rank, f"{hit.score:.3f}", hit.metadata["label"], hit.metadata["path"])
