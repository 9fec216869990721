"""The icon fonts of the demo set: where each is stored, how it names its icons, and its licence.

Every font ships inside a package of the ``demo`` extra. Only font and name files are read; the packages
are never imported, so their GUI toolkits are not needed.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from tophit.errors import TophitError


@dataclass(frozen=True)
class IconFont:
    """One font file of an icon family, with the rules that turn its glyph names into icon names."""

    family: str
    style: str
    package: str
    font: str
    names: str
    licence: str
    drop_prefix: str = ""
    drop_suffix: str = ""
    keep: str = ""

    def path(self, file: str) -> Path:
        """Return the path of one of the installed package's files."""
        try:
            path = Path(str(distribution(self.package).locate_file(file)))
        except PackageNotFoundError:
            raise TophitError(
                f"The demo set needs the package '{self.package}', which is not installed; "
                "install the extra with: pip install 'tophit[demo]'"
            ) from None
        if not path.is_file():
            raise TophitError(f"The package '{self.package}' has no file {file}; expected it at {path}.")
        return path

    def glyphs(self) -> dict[str, int]:
        """Map normalised icon names to code points; of names that become equal, the shortest original wins."""
        found: dict[str, tuple[int, str, int]] = {}
        for raw, code in _read_names(self.path(self.names)).items():
            if self.keep and not re.search(self.keep, raw):
                continue
            name = normalise(raw, self.drop_prefix, self.drop_suffix)
            candidate = (len(raw), raw, code)
            if name and candidate < found.get(name, (1 << 30, "", 0)):
                found[name] = candidate
        return {name: code for name, (_, _, code) in sorted(found.items())}


def normalise(raw: str, drop_prefix: str = "", drop_suffix: str = "") -> str:
    """Return a font's glyph name in the spelling shared by all families.

    >>> normalise("ic-fluent-shopping_bag-24-filled", "ic-fluent-", "-24-filled")
    'shopping-bag'
    """
    name = raw.lower().replace("_", "-")
    if drop_prefix:
        name = re.sub(f"^(?:{drop_prefix})", "", name)
    if drop_suffix:
        name = re.sub(f"(?:{drop_suffix})$", "", name)
    return name.strip("-")


def _read_json_names(text: str) -> dict[str, int]:
    codes: dict[str, int] = {}
    for name, value in json.loads(text).items():
        if isinstance(value, dict):
            value = value["encodedCode"].lstrip("\\")
        codes[name] = value if isinstance(value, int) else int(value, 16)
    return codes


def _read_css_names(text: str) -> dict[str, int]:
    rules = re.findall(r"\.([\w-]+):before\s*\{\s*content:\s*\"\\([0-9a-f]+)\"", text)
    return {name: int(code, 16) for name, code in rules}


def _read_codepoint_lines(text: str) -> dict[str, int]:
    return {name: int(code, 16) for name, code in (line.split() for line in text.splitlines() if line.strip())}


_READERS: dict[str, Callable[[str], dict[str, int]]] = {
    ".json": _read_json_names,
    ".css": _read_css_names,
    ".codepoints": _read_codepoint_lines,
}


def _read_names(path: Path) -> dict[str, int]:
    return _READERS[path.suffix](path.read_text(encoding="utf-8"))


def _qtawesome(family: str, style: str, stem: str, version: str, licence: str, **rules: str) -> IconFont:
    font = f"qtawesome/fonts/{stem}-{version}.ttf"
    names = f"qtawesome/fonts/{stem}-charmap-{version}.json"
    return IconFont(family, style, "qtawesome", font, names, licence, **rules)


def _iconipy(family: str, style: str, font: str, names: str, licence: str, **rules: str) -> IconFont:
    return IconFont(family, style, "iconipy", f"iconipy/assets/{font}", f"iconipy/assets/{names}", licence, **rules)


def _ttkbootstrap(family: str, style: str, short: str, font: str, names: str, licence: str, **rules: str) -> IconFont:
    folder = f"ttkbootstrap_icons_{short}"
    package = f"ttkbootstrap-icons-{short}"
    return IconFont(family, style, package, f"{folder}/{font}", f"{folder}/{names}", licence, **rules)


def _material(style: str, stem: str, suffix: str = "otf") -> IconFont:
    folder = re.sub(r"(?<!^)(?=[A-Z])", "_", stem.replace("-", "")).lower()
    base = f"{folder}/{stem}"
    return _iconipy("material-icons", style, f"{base}.{suffix}", f"{base}.codepoints", "Apache-2.0")


_PHOSPHOR = ("phosphor", "1.3.0", "MIT")
_MDI = ("materialdesignicons6-webfont", "6.9.96", "Apache-2.0")
_REMIX = ("remixicon", "2.5.0", "Apache-2.0")
_BOXICONS = ("boxicons/boxicons.ttf", "boxicons/boxicons.css", "MIT")
_EVA = ("eva", "fonts/eva-icons.ttf", "glyphmap.json", "MIT")
_ION = ("ion", "fonts/ionicons.ttf", "glyphmap.json", "MIT")
_TYPICONS = ("typicons", "fonts/typicons.ttf", "glyphmap.json", "CC-BY-SA-3.0 / OFL-1.1")
_BOOTSTRAP = ("bs", "assets/bootstrap.ttf", "assets/glyphmap.json", "MIT")
_FONT_AWESOME = "CC-BY-4.0 / OFL-1.1"

ICON_FONTS: tuple[IconFont, ...] = (
    _qtawesome("font-awesome", "solid", "fontawesome6-solid-webfont", "6.7.2", _FONT_AWESOME),
    _qtawesome("font-awesome", "regular", "fontawesome6-regular-webfont", "6.7.2", _FONT_AWESOME),
    _qtawesome("font-awesome", "brands", "fontawesome6-brands-webfont", "6.7.2", _FONT_AWESOME),
    _qtawesome("material-design-icons", "filled", *_MDI, keep="(?<!-outline)$"),
    _qtawesome("material-design-icons", "outline", *_MDI, keep="-outline$", drop_suffix="-outline"),
    _qtawesome("phosphor", "regular", *_PHOSPHOR, keep="(?<!-bold)(?<!-fill)(?<!-light)(?<!-thin)$"),
    _qtawesome("phosphor", "fill", *_PHOSPHOR, keep="-fill$", drop_suffix="-fill"),
    _qtawesome("remix", "line", *_REMIX, keep="(?<!-fill)$", drop_suffix="-line"),
    _qtawesome("remix", "fill", *_REMIX, keep="-fill$", drop_suffix="-fill"),
    _qtawesome("codicons", "regular", "codicon", "0.0.36", "CC-BY-4.0"),
    _qtawesome("elusive", "regular", "elusiveicons-webfont", "2.0", "OFL-1.1"),
    _iconipy("boxicons", "regular", *_BOXICONS, keep="^bx-", drop_prefix="bx-"),
    _iconipy("boxicons", "solid", *_BOXICONS, keep="^bxs-", drop_prefix="bxs-"),
    _iconipy("boxicons", "logos", *_BOXICONS, keep="^bxl-", drop_prefix="bxl-"),
    _iconipy("lucide", "regular", "lucide/lucide.ttf", "lucide/info.json", "ISC"),
    _iconipy(
        "lineicons",
        "regular",
        "lineicons/lineicons.ttf",
        "lineicons/unicodesMap.json",
        "MIT",
        drop_prefix="lni-",
        drop_suffix="-1",
    ),
    _material("regular", "MaterialIcons-Regular", "ttf"),
    _material("outlined", "MaterialIconsOutlined-Regular"),
    _ttkbootstrap("typicons", "filled", *_TYPICONS, keep="^(?!typcn-).*(?<!-outline)$"),
    _ttkbootstrap("typicons", "outline", *_TYPICONS, keep="^(?!typcn-).*-outline$", drop_suffix="-outline"),
    _ttkbootstrap("ionicons", "regular", *_ION, keep="^(?!ion-|android-|ios-).*(?<!-outline)$"),
    _ttkbootstrap(
        "ionicons",
        "outline",
        *_ION,
        keep="^(?!ion-|android-|ios-).*-outline$",
        drop_suffix="-outline",
    ),
    _ttkbootstrap("ionicons", "android", *_ION, keep="^ion-android-", drop_prefix="ion-android-"),
    _ttkbootstrap("ionicons", "ios", *_ION, keep="^ion-ios-.*(?<!-outline)$", drop_prefix="ion-ios-"),
    _ttkbootstrap(
        "fluent",
        "filled",
        "fluent",
        "fonts/FluentSystemIcons-Filled.ttf",
        "glyphmap-filled.json",
        "MIT",
        keep="-24-filled$",
        drop_prefix="ic-fluent-",
        drop_suffix="-24-filled",
    ),
    _ttkbootstrap(
        "fluent",
        "regular",
        "fluent",
        "fonts/FluentSystemIcons-Regular.ttf",
        "glyphmap-regular.json",
        "MIT",
        keep="-24-regular$",
        drop_prefix="ic-fluent-",
        drop_suffix="-24-regular",
    ),
    _ttkbootstrap("eva", "fill", *_EVA, keep="^(?!eva-).*(?<!-outline)$"),
    _ttkbootstrap("eva", "outline", *_EVA, keep="^(?!eva-).*-outline$", drop_suffix="-outline"),
    _ttkbootstrap("bootstrap", "regular", *_BOOTSTRAP, keep="(?<!-fill)$"),
    _ttkbootstrap("bootstrap", "fill", *_BOOTSTRAP, keep="-fill$", drop_suffix="-fill"),
)
