"""What a model writes as elements: nothing of it is markup of the page, nothing of it is lost, nothing takes long."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from web.conftest import Tab

pytestmark = pytest.mark.asyncio(loop_scope="session")

RENDER = """async (texts) => {
  const { Prose } = await import("/assets/markdown/render.js");
  return texts.map((text) => {
    const prose = new Prose();
    prose.update(text);
    return prose.element.innerHTML.replaceAll(/<svg.*?<\\/svg>/g, "");
  });
}"""

CASES = {
    "a\nb": "<p>a\nb</p>",
    "a\n\nb": "<p>a</p><p>b</p>",
    "# T #": "<h3>T</h3>",
    "###### T": "<h6>T</h6>",
    "*a* _b_ **c** ~~d~~ `e`": "<p><em>a</em> <em>b</em> <strong>c</strong> <del>d</del> <code>e</code></p>",
    "***a*** **b *c***": "<p><em><strong>a</strong></em> <strong>b <em>c</em></strong></p>",
    "snake_case_name 2 * 3 * 4": "<p>snake_case_name 2 * 3 * 4</p>",
    r"\*a\* \\ \q": r"<p>*a* \ \q</p>",
    "`` a`b ``": "<p><code>a`b</code></p>",
    "- a\n- b\n  - c": "<ul><li><span>a</span></li><li><span>b</span><ul><li><span>c</span></li></ul></li></ul>",
    "3. a\n4. b": '<ol start="3"><li><span>a</span></li><li><span>b</span></li></ol>',
    "- a\n\n- b": "<ul><li><p>a</p></li><li><p>b</p></li></ul>",
    "- a\n\nb": "<ul><li><span>a</span></li></ul><p>b</p>",
    "> a\n> > b": "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote>",
    "---": "<hr>",
    "In\n1986. A year": "<p>In\n1986. A year</p>",
    "<b>x</b> &amp; <!-- c -->": "<p>&lt;b&gt;x&lt;/b&gt; &amp;amp; &lt;!-- c --&gt;</p>",
    "[a](javascript:alert(1)) [b](data:text/html,x)": "<p>[a](javascript:alert(1)) [b](data:text/html,x)</p>",
    "[a](JaVaScRiPt:alert(1)) [b]( javascript:x)": "<p>[a](JaVaScRiPt:alert(1)) [b]( javascript:x)</p>",
    "[a](//evil.example) [b](/v1/models)": "<p>[a](//evil.example) [b](/v1/models)</p>",
}


@pytest.fixture
def tab(shared_tab: Tab) -> Tab:
    """The shared tab as it is: what is tested here keeps nothing."""
    return shared_tab


async def render(tab: Tab, texts: list[str]) -> list[str]:
    found: list[str] = await tab.page.evaluate(RENDER, texts)
    return found


async def test_cases(tab: Tab) -> None:
    found = await render(tab, list(CASES))
    assert dict(zip(CASES, found, strict=True)) == CASES


async def test_links_lead_out_and_tell_nothing(tab: Tab) -> None:
    texts = [
        '[a *b*](https://x.example/p?q=(1) "title")',
        "see https://x.example/a_b, or (http://y.example/).",
        "<mailto:me@x.example> ![pic](https://x.example/track.png)",
        '[x](https://x.example/"onmouseover=alert(1))',
    ]
    html = "".join(await render(tab, texts))
    hrefs = await tab.page.evaluate(
        """(html) => [...new DOMParser().parseFromString(html, "text/html").querySelectorAll("*")].flatMap((each) => (
          each.matches("a, img, script") ? [[each.localName, each.getAttribute("href"), each.rel, each.textContent,
            each.getAttributeNames().filter((name) => name.startsWith("on")).join()]] : []))""",
        html,
    )
    safe = "noopener noreferrer nofollow"
    assert hrefs == [
        ["a", "https://x.example/p?q=(1)", safe, "a b", ""],
        ["a", "https://x.example/a_b", safe, "https://x.example/a_b", ""],
        ["a", "http://y.example/", safe, "http://y.example/", ""],
        ["a", "mailto:me@x.example", safe, "mailto:me@x.example", ""],
        ["a", "https://x.example/track.png", safe, "pic", ""],
        ["a", "https://x.example/%22onmouseover=alert(1)", safe, "x", ""],
    ]


async def test_code_and_tables(tab: Tab) -> None:
    text = '```py\nif a < b:\n\n    "**x**"\n```\n\n| a | b |\n|:-:|--:|\n| `x|y` | \\| |\n| 1 |\n\n```\nopen'
    await tab.page.evaluate(
        """async (text) => {
          const { Prose } = await import("/assets/markdown/render.js");
          const prose = new Prose();
          prose.update(text);
          document.querySelector("#thread").replaceChildren(prose.element);
        }""",
        text,
    )
    assert await tab.page.locator("pre code").all_text_contents() == ['if a < b:\n\n    "**x**"', "open"]
    assert await tab.page.locator("figcaption span").all_text_contents() == ["py", "text"]
    assert await tab.page.locator("#thread :is(th, td)").all_text_contents() == ["a", "b", "x|y", "|", "1", ""]
    assert await tab.page.locator("#thread th").nth(1).get_attribute("class") == "align-end"


HOSTILE = {
    "nested quotes": ">" * 20_000,
    "nested lists": "".join("  " * depth + "- x\n" for depth in range(400)),
    "openers": "*a _b **c ~~d `e [f ![g <h " * 4000,
    "brackets": "[" * 50_000 + "](" + "(" * 50_000,
    "links": "[a](" * 20_000,
    "runs": "".join("`" * length + " " for length in range(300)),
    "stars": "*" * 60_000,
    "mixed": "**a *b " * 8000 + "* **" * 8000,
    "long rule": "- " * 30_000 + "x",
    "long heading": "# a" + " " * 60_000 + "#x",
    "long fence": "```" + " " * 60_000 + "`",
    "table": "a|\n-" + " " * 60_000 + "x",
    "wide table": "|" * 20_000 + "\n" + "|-" * 20_000 + "|",
    "empty lines": "- a\n" + "\n" * 50_000 + "  b",
    "url": "http://" + "." * 50_000 + "x",
    "angles": "<" * 50_000,
    "spaces": "a" + " " * 100_000 + "b",
    "one paragraph": "word\n" * 20_000,
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_text_does_not_hang_the_page(name: str, tab: Tab) -> None:
    """Quadratic work on these sizes takes minutes, and Playwright gives up after eight seconds."""
    html = await render(tab, [HOSTILE[name]])
    assert html[0]


PIECES = ["*", "**", "_", "`", "```\n", "\n", "\n\n", "- ", "  - ", "1. ", "> ", "# ", "|", "|-|\n", "[", "](", ")",
          "!", "<script>", "</p>", "<img src=x onerror=alert(1)>", "javascript:", "http://a.example", "&lt;", "\\",
          "~~", " ", "word", "é", "\u202e", "\x00", '"', "'", "\r", "\t"]  # fmt: skip
TEXTS = st.lists(st.lists(st.sampled_from(PIECES), max_size=25).map("".join), min_size=20, max_size=20)

CHECK = """async (texts) => {
  const { Prose } = await import("/assets/markdown/render.js");
  const allowed = new Set(["p", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "hr", "pre", "code", "figure",
    "figcaption", "button", "svg", "use", "span", "em", "strong", "del", "a", "div", "table", "thead", "tbody", "tr",
    "th", "td"]);
  const words = (text) => (text.match(/word|é|"|'/g) ?? []).length;
  const wrong = [];
  for (const text of texts) {
    const whole = new Prose();
    whole.update(text);
    const grown = new Prose();
    for (let end = 0; end <= text.length; end += 1) grown.update(text.slice(0, end));
    if (whole.element.innerHTML !== grown.element.innerHTML) wrong.push(["grown", text]);
    for (const element of whole.element.querySelectorAll("*")) {
      if (!allowed.has(element.localName)) wrong.push(["element", element.localName, text]);
      if (element.localName === "a" && !/^https?:\\/\\//.test(element.getAttribute("href"))) wrong.push(["link", text]);
      for (const name of element.getAttributeNames()) if (name.startsWith("on")) wrong.push(["attribute", name, text]);
    }
    const labels = [...whole.element.querySelectorAll("figcaption span")].map((each) => each.textContent).join("");
    if (words(whole.element.textContent) < words(text) && !labels && !text.includes("](") && !text.includes("|"))
      wrong.push(["lost", text]);
  }
  return wrong;
}"""


async def test_however_a_text_is_cut_it_ends_the_same_and_safe(tab: Tab) -> None:
    # Hypothesis has no way to run a coroutine in a loop that runs: its examples are drawn first, and judged together.
    drawn: list[list[str]] = []

    @settings(max_examples=5, database=None, suppress_health_check=list(HealthCheck))
    @given(TEXTS)
    def draw(texts: list[str]) -> None:
        drawn.append(texts)

    draw()
    wrong: list[Any] = await tab.page.evaluate(CHECK, [text for texts in drawn for text in texts])
    assert wrong == []
