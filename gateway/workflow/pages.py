"""Pages as a model should see them: what a reader sees, and nothing else."""

from html.parser import HTMLParser


class _Words(HTMLParser):
    """Collects what a reader of a page would see."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._hidden += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._hidden = max(0, self._hidden - (tag in ("script", "style")))

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.words += data.split()


def visible_text(html: str) -> str:
    """The words of a piece of HTML on one line, without scripts and styles."""
    reader = _Words()
    reader.feed(html)
    reader.close()
    return " ".join(reader.words)
