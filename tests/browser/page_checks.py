"""What holds for every page: nothing is too wide, links lead somewhere, labels are seen."""

from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from chromium import Page

OVERFLOWING = """
(() => {
  const width = %d;
  if (document.documentElement.scrollWidth <= width) return [];
  const end = element =>
    element.getBoundingClientRect().left + Math.max(element.scrollWidth, element.offsetWidth ?? 0);
  const wide = element => !(end(element) <= width + 1)
    && getComputedStyle(element).overflowX === "visible";
  const name = element => element.tagName.toLowerCase() +
    (element.id ? "#" + element.id : [...element.classList].map(c => "." + c).join(""));
  const deepest = element => {
    const inside = [...element.children].filter(wide).flatMap(deepest);
    return inside.length ? inside : [name(element)];
  };
  return deepest(document.documentElement);
})()
"""
FAINT = """
(() => {
  const light = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(value => value / 255)
      .map(value => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  return [...document.querySelectorAll("svg text")].filter(text => {
    const ink = light(getComputedStyle(text).fill);
    return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05) < 4.5;
  }).map(text => text.textContent.trim());
})()
"""
OUTSIDE = """
(() => {
  const whole = document.documentElement.getBoundingClientRect();
  const boxes = [...document.querySelectorAll("rect.box")].map(box => box.getBoundingClientRect());
  return [...document.querySelectorAll("text")].filter(text => {
    const own = text.getBoundingClientRect();
    const x = own.left + own.width / 2, y = own.top + own.height / 2;
    const around = boxes.filter(box =>
      box.left < x && x < box.right && box.top < y && y < box.bottom);
    return [whole, ...around].some(box => own.left < box.left || own.right > box.right);
  }).map(text => text.textContent.trim());
})()
"""
LINKS = "[...new Set([...document.querySelectorAll('a[href]')].map(link => link.href))]"
IDS = "[...document.querySelectorAll('[id]')].map(element => element.id)"


def overflowing(page: Page) -> list[str]:
    """Return the elements that make the page scroll sideways."""
    return list(page.value(OVERFLOWING % page.width))


def faint_labels(page: Page) -> list[str]:
    """Return the labels of drawings that do not stand out from the page.

    The contrast is that of WCAG, at least 4.5. axe-core does not look into drawings.
    """
    return list(page.value(FAINT))


def outside(page: Page) -> list[str]:
    """Return the texts of a drawing that are wider than the drawing, or than their box."""
    return list(page.value(OUTSIDE))


def broken_links(page: Page) -> list[str]:
    """Return the links that lead to no file, or to no element of it; the web is left out."""
    here, live = path_of(page.url), set(page.value(IDS))
    broken = []
    for link in page.value(LINKS):
        path, anchor = path_of(link), unquote(urlsplit(link).fragment)
        if urlsplit(link).scheme != "file":
            continue
        ids = live if path == here else _ids(path)
        if ids is None or (anchor and anchor not in ids):
            broken.append(link)
    return broken


def path_of(url: str) -> Path:
    """Return the file that an address names."""
    return Path(unquote(urlsplit(url).path))


@cache
def _ids(path: Path) -> frozenset[str] | None:
    """Return the ids of a file's elements; ``None`` if there is no such file."""
    if not path.is_file():
        return None
    reader = _IdReader()
    if path.suffix in (".html", ".htm"):
        reader.feed(path.read_text())
    return frozenset(reader.ids)


class _IdReader(HTMLParser):
    """Collects ids."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids |= {value for name, value in attrs if name == "id" and value}
