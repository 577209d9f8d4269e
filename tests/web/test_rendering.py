"""Pages from templates: text stays text, and a mistake in a template is an error."""

import re
from importlib.resources import files

import pytest
from jinja2 import TemplateNotFound, UndefinedError

from hypervisor.web.rendering import PACKAGE, environment, inlined, source_hash

TEMPLATES = environment().list_templates()
OUR_LINKS = ("{{ entry.path }}", "{{ url }}", "{{ back }}")  # made by our code
BELOW_OURS = ("{{ url }}/", "{{ item_url }}/")


def render(source, **values):
    return environment().from_string(source).render(values)


def test_text_is_escaped_and_shows_what_is_invisible():
    text = "<b>\"&'\u202e\x1b\0\ud800\n"
    shown = "&lt;b&gt;&#34;&amp;&#39;\\u202e\\x1b\\x00\\ud800\\n"
    assert render("{{ text }}", text=text) == shown
    assert render("{% macro m(x) %}<i>{{ x }}</i>{% endmacro %}{{ m(text) }}", text=text) == (
        f"<i>{shown}</i>"
    )


def test_joiners_of_words_and_emoji_stay():
    assert render("{{ text }}", text="👩‍💻") == "👩‍💻"


def test_a_name_that_is_not_given_is_an_error():
    with pytest.raises(UndefinedError):
        render("{{ missing }}")
    with pytest.raises(TemplateNotFound):
        environment().get_template("no-such.html")


def test_a_policy_allows_the_inlined_files_by_hash():
    parts = inlined(("base.css", "report.css"), "report.js")
    for name in ("style", "script"):
        assert f"{name}-src {source_hash(parts[name])};" in parts["policy"]
        assert "</" not in parts[name]  # or it would end its element


@pytest.mark.parametrize("name", TEMPLATES)
def test_no_template_trusts_a_value_or_carries_code(name):
    source = (files(PACKAGE) / "templates" / name).read_text(encoding="utf-8")
    for word in (
        "|safe",
        "| safe",
        "autoescape",
        " style=",
        " onclick",
        "<style>\n",
        "javascript:",
    ):
        assert word not in source
    links = re.findall(r'\b(?:href|src|action)="([^"]*)"', source)
    if name.startswith("report/"):
        assert links == []  # a page on its own
    for link in links:  # into the dashboard, never where a text says
        assert link.startswith(("/", "#", "?", *BELOW_OURS)) or link in OUR_LINKS, link


def test_there_are_templates():
    assert "report/page.html" in TEMPLATES


def test_a_long_text_is_shortened_where_pages_are_fetched_often():
    short = environment(most=10).from_string("{{ text }}|{{ 7 }}|{{ text|e }}")
    assert short.render(text="\x1b" * 4 + "x" * 2_006) == (
        r"\x1b\x1b\x1b\x1bxxxxxx … (2,000 more characters)|7|" + "\x1b" * 4 + "x" * 2_006
    )
