"""Tiny trees in the original layouts of the benchmark sets, awkward parts included."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw


def picture(path: Path, kind: int, number: int, side: tuple[int, int] = (60, 48)) -> None:
    """Draw a JPEG of a class: its polygon and colour are the class's, place and size the picture's own."""
    random = np.random.default_rng((kind, number))
    colour = tuple(int(c) for c in np.random.default_rng(kind).integers(0, 200, 3))
    image = Image.new("RGB", side, "white")
    centre = random.uniform(0.4, 0.6) * side[0], random.uniform(0.4, 0.6) * side[1]
    ImageDraw.Draw(image).regular_polygon((*centre, random.uniform(12, 18)), 3 + kind % 5, fill=colour)
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, quality=95)


def lines(path: Path, content: Sequence[str], end: str = "\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((end.join(content) + end).encode())


def cub200(root: Path, per_class: int = 4, classes: int = 4) -> Path:
    """Ids from 1, classes of both halves, boxes as left, top, width, height, Windows line ends in one table."""
    kinds = [*range(1, classes + 1), *range(101, 101 + classes)]
    found = [(kind, f"{kind:03d}.Bird_{kind}/Bird_{kind:04d}_{n}.jpg", n) for kind in kinds for n in range(per_class)]
    for kind, path, n in found:
        picture(root / "images" / path, kind, n)
    lines(root / "images.txt", [f"{i} {path}" for i, (_, path, _) in enumerate(found, 1)])
    lines(root / "image_class_labels.txt", [f"{i} {kind}" for i, (kind, _, _) in enumerate(found, 1)], "\r\n")
    lines(root / "classes.txt", [f"{kind} {kind:03d}.Bird_{kind}" for kind in kinds])
    lines(root / "bounding_boxes.txt", [f"{i} 10.0 5.0 30.0 40.0" for i in range(1, len(found) + 1)])
    lines(root / "train_test_split.txt", [f"{i} {i % 2}" for i in range(1, len(found) + 1)])
    return root


def _mat_annotations(rows: Sequence[dict[str, object]]) -> np.ndarray:
    """Return a MATLAB struct array (1, N), each field as MATLAB saves it."""
    fields = [(name, object) for name in rows[0]]
    array = np.empty((1, len(rows)), dtype=fields)
    for number, row in enumerate(rows):
        for name, value in row.items():
            array[0, number][name] = value
    return array


def _car_classes(classes: int, given: Mapping[int, str] | None = None) -> tuple[list[int], np.ndarray]:
    names = np.empty((1, 196), dtype=object)
    names[0] = [(given or {}).get(kind, f"Car {kind} Sedan 2012") for kind in range(1, 197)]
    return [*range(1, classes + 1), *range(99, 99 + classes)], names


def _car_box() -> dict[str, object]:
    return {"bbox_x1": np.uint16(11), "bbox_y1": np.uint16(6), "bbox_x2": np.uint16(40), "bbox_y2": np.uint16(45)}


def cars196(root: Path, per_class: int = 4, classes: int = 4, names: Mapping[int, str] | None = None) -> Path:
    """The single file cars_annos.mat and car_ims/; classes and pixels count from 1."""
    from scipy.io import savemat

    kinds, class_names = _car_classes(classes, names)
    rows = []
    for kind in kinds:
        for _ in range(per_class):
            path = f"car_ims/{len(rows) + 1:06d}.jpg"
            picture(root / path, kind, len(rows))
            rows.append({"relative_im_path": path, **_car_box(), "class": np.uint8(kind), "test": np.uint8(kind % 2)})
    savemat(root / "cars_annos.mat", {"annotations": _mat_annotations(rows), "class_names": class_names})
    return root


def cars196_devkit(root: Path, per_class: int = 4, classes: int = 4) -> Path:
    """The devkit's two files, whose own split is by images: every class is in both."""
    from scipy.io import savemat

    kinds, names = _car_classes(classes)
    (root / "devkit").mkdir(parents=True)
    savemat(root / "devkit" / "cars_meta.mat", {"class_names": names})
    for part, file in (("train", "devkit/cars_train_annos.mat"), ("test", "cars_test_annos_withlabels.mat")):
        rows = []
        for kind in kinds:
            for n in range(per_class // 2):
                name = f"{len(rows) + 1:05d}.jpg"
                picture(root / f"cars_{part}" / name, kind, n + (10 if part == "test" else 0))
                rows.append({**_car_box(), "class": np.uint8(kind), "fname": name})
        savemat(root / file, {"annotations": _mat_annotations(rows)})
    return root


def sop(root: Path, per_class: int = 4, classes: int = 4) -> Path:
    """Lists under a header, with paths below super-class folders."""
    image = 0
    for split, first in (("train", 1), ("test", 1 + classes)):
        content = ["image_id class_id super_class_id path"]
        for kind in range(first, first + classes):
            kingdom = ("bicycle", "coffee_maker")[kind % 2]
            for n in range(per_class):
                image += 1
                path = f"{kingdom}_final/{111000 + kind}_{n}.JPG"
                picture(root / path, kind, n)
                content.append(f"{image} {kind} {1 + kind % 2} {path}")
        lines(root / f"Ebay_{split}.txt", content, "\r\n" if split == "test" else "\n")
    return root


def vehicleid(root: Path, per_class: int = 4, classes: int = 4) -> Path:
    """Lists of image and vehicle without .jpg; the larger test sets hold the smaller ones' vehicles."""
    lists: dict[str, list[str]] = {name: [] for name in ("train_list", *(f"test_list_{n}" for n in (800, 1600, 2400)))}
    image = 0
    for kind in range(classes + 4):
        for n in range(per_class):
            image += 1
            picture(root / "image" / f"{image:07d}.jpg", kind, n)
            line = f"{image:07d} {10_000 + kind}"
            if kind < classes:
                lists["train_list"].append(line)
            else:
                later = kind - classes
                for size, most in ((800, 2), (1600, 3), (2400, 4)):
                    if later < most:
                        lists[f"test_list_{size}"].append(line)
    for name, content in lists.items():
        lines(root / "train_test_split" / f"{name}.txt", content, "\r\n")
    return root


def inaturalist(root: Path, per_class: int = 4, classes: int = 4) -> Path:
    """Annotations of two years' parts and the split's lists of paths; species are numbers from 0."""
    images, annotations = [], []
    listed: dict[str, list[str]] = {"train": [], "test": []}
    for kind in range(2 * classes):
        for n in range(per_class):
            path = f"train_val2018/{'Aves' if kind % 2 else 'Plantae'}/{kind}/{kind:04x}{n:04x}.jpg"
            picture(root / path, kind, n)
            images.append({"id": len(images), "file_name": path})
            annotations.append({"id": len(images), "image_id": len(images) - 1, "category_id": kind})
            listed["train" if kind < classes else "test"].append(path)
    categories = [{"id": kind, "name": f"Species {kind}"} for kind in range(2 * classes)]
    for part, chosen in (("train", slice(0, None, 2)), ("val", slice(1, None, 2))):
        content = {"images": images[chosen], "annotations": annotations[chosen], "categories": categories}
        (root / f"{part}2018.json").write_text(json.dumps(content))
    for part, paths in listed.items():
        lines(root / "Inat_dataset_splits" / f"Inaturalist_{part}_set1.txt", paths)
    return root


def inshop(root: Path, per_class: int = 4, classes: int = 4) -> Path:
    """A count, a header, columns padded with blanks; half of a test item's photos are queries."""
    rows = []
    for kind in range(2 * classes):
        for n in range(per_class):
            name = f"img/WOMEN/Dresses/id_{kind:08d}/0{n}_1_front.jpg"
            picture(root / "Img" / name, kind, n)
            part = "train" if kind < classes else ("query", "gallery")[n % 2]
            rows.append((name, f"id_{kind:08d}", part))
    header = [str(len(rows)), "image_name item_id evaluation_status"]
    lines(root / "Eval" / "list_eval_partition.txt", [*header, *(f"{a:<70}{b}   {c}" for a, b, c in rows)])
    header = [str(len(rows)), "image_name clothes_type pose_type x_1 y_1 x_2 y_2"]
    lines(root / "Anno" / "list_bbox_inshop.txt", [*header, *(f"{a:<70}3 1 010 005 040 045" for a, _, _ in rows)])
    return root


TREES: dict[str, Callable[..., Path]] = {
    "cub200": cub200,
    "cars196": cars196,
    "sop": sop,
    "vehicleid": vehicleid,
    "inaturalist": inaturalist,
    "inshop": inshop,
}
