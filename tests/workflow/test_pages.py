"""Pages as plain words."""

from gateway.workflow import visible_text


def test_words_are_kept_and_scripts_styles_and_tags_are_not():
    page = "<h1>Oil &amp; gas</h1><script>steal()</script><style>p {}</style><p>up\n  3 %</p> <b>broken"
    assert visible_text(page) == "Oil & gas up 3 % broken"
    assert visible_text("no markup, 1 < 2") == "no markup, 1 < 2"
