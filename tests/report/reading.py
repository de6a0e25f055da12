"""A page as its readers have it: tags, text, and what the drawings say."""

from html.parser import HTMLParser

from advnorm.report import write


class Reader(HTMLParser):
    """Collects tags with attributes, ids and text."""

    def __init__(self, text):
        super().__init__()
        self.source, self.tags, self.words = text, [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join("".join(self.words).split())

    def count(self, tag):
        return sum(name == tag for name, _ in self.tags)

    def ids(self):
        return [attrs["id"] for _, attrs in self.tags if "id" in attrs]


def page(runs, tmp_path):
    return Reader(write(runs, tmp_path / "report.html").read_text())


def drawings(read):
    labels = [attrs["aria-label"] for _, attrs in read.tags if attrs.get("role") == "img"]
    return {label.partition(". ")[0]: label.partition(". ")[2] for label in labels}
