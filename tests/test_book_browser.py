"""The book in a browser: pages load in silence and from here alone, filters and switches work, axe finds nothing."""

import re

import book_site
import pytest

from book import site as checks
from helpers import papers

SLUG = "sentiment-direction"
LOOKED_AT = (
    "index.html", "gallery.html", "scoreboard.html", "untrained.html", "model.html", f"papers/{SLUG}.html",
    "teach/index.html", "run/sweep.html", "reference/plots.html", "glossary.html",
)  # fmt: skip
_AXE = {"preload": False}  # axe looks for imported style sheets in the wrong folder
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}


@pytest.fixture(scope="module")
def base(site):
    with book_site.served(site) as address:
        yield address


@pytest.fixture(scope="module")
def running(base):
    book_site.chromium()
    with book_site.browser() as browser:
        yield browser


@pytest.fixture
def open_page(running, base):
    """A function that opens a tab, in which every other host is out of reach; it fails if anything was asked of one."""
    contexts, trouble = [], []

    def open_(path="", size="desktop", scheme="light", **options):
        width, height = SIZES[size]
        context = running.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **options)
        context.set_default_timeout(60_000)
        contexts.append(context)
        context.route(
            lambda url: not url.startswith(base), lambda route: (trouble.append(route.request.url), route.abort())
        )
        tab = context.new_page()
        tab.on("console", lambda said: trouble.append(said.text) if said.type in ("error", "warning") else None)
        tab.on("pageerror", lambda error: trouble.append(str(error)))
        tab.on("requestfailed", lambda request: _note_failure(request, trouble))
        tab.on("response", lambda got: trouble.append(f"{got.url}: {got.status}") if got.status >= 400 else None)
        tab.goto(f"{base}/{path}")
        return tab

    open_.trouble = trouble
    yield open_
    for context in contexts:
        context.close()
    assert not trouble, "\n".join(dict.fromkeys(trouble))


def _note_failure(request, trouble):
    if request.failure not in ("net::ERR_ABORTED", "csp"):  # left for another page; scripts where there are none
        trouble.append(f"{request.url}: {request.failure}")


def shown(tab, selector):
    return tab.locator(selector).filter(visible=True)


def test_every_page_loads_in_silence_and_from_here_alone(open_page, site, base):
    tab = open_page("index.html")
    for page in checks.pages(site):
        name = page.path.relative_to(site).as_posix()
        tab.goto(f"{base}/{name}", wait_until="load")
        assert tab.evaluate("document.fonts.ready.then(() => document.readyState)") in ("interactive", "complete"), name
        assert not open_page.trouble, f"{name}: {open_page.trouble}"


def test_a_foreign_request_would_be_noticed(open_page):
    tab = open_page("index.html")
    tab.evaluate("fetch('https://cdn.example/x.js').catch(() => null)")
    assert any("cdn.example" in one for one in open_page.trouble)
    open_page.trouble.clear()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("path", LOOKED_AT)
def test_no_page_is_wider_than_the_screen(path, size, open_page):
    tab = open_page(path, size)
    width = tab.evaluate("document.documentElement.scrollWidth")
    assert width <= SIZES[size][0], f"{path} is {width} wide"


@pytest.mark.parametrize(
    ("path", "box"), [("index.html", ".hero .figure > a"), (f"papers/{SLUG}.html", ".cell .output:has(img)")]
)
def test_on_a_phone_a_figure_is_large_enough_to_read_and_moves_sideways(path, box, open_page):
    tab = open_page(path, "phone")
    figure = tab.locator(box).first
    figure.scroll_into_view_if_needed()
    image = figure.locator("img")
    tab.wait_for_function("image => image.complete && image.naturalWidth", arg=image.element_handle())
    scale = image.evaluate("image => image.getBoundingClientRect().width / image.naturalWidth")
    assert scale > 0.6, f"words drawn 15 pixels high are shown {15 * scale:.0f} high"
    assert "more" in figure.get_attribute("class"), "its edge says that there is more"
    figure.focus()
    for _ in range(30):
        tab.keyboard.press("ArrowRight")
    book_site.eventually(lambda: "more" not in figure.get_attribute("class"), seconds=20)


def test_on_a_phone_nothing_is_cut_off(open_page):
    tab = open_page(f"papers/{SLUG}.html", "phone")
    tab.locator(".prev-next-area").scroll_into_view_if_needed()
    for place in (".left-prev .prev-next-title", ".right-next .prev-next-title"):
        box = tab.locator(place).bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= SIZES["phone"][0], place
    tab = open_page("model.html", "phone")
    measure = "texts => texts.map(text => text.getBoundingClientRect().height)"
    heights = tab.eval_on_selector_all(".curves text", measure)
    assert min(heights) > 11, "words of a drawing are too small to read"
    tab = open_page("scoreboard.html", "phone")
    for part in ("th[scope='row']", ".bar", ".verdict"):
        box = tab.locator(f"tbody tr {part}").first.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= SIZES["phone"][0], part
    tab.get_by_role("button", name="Verdict").click()
    assert tab.locator("th[aria-sort='ascending']").inner_text().startswith("Verdict")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_axe_finds_nothing_serious(size, scheme, open_page, base):
    from axe_playwright_python.sync_playwright import Axe

    tab, found = open_page("index.html", size, scheme), []
    for path in LOOKED_AT:
        tab.goto(f"{base}/{path}")
        tab.wait_for_load_state("load")
        for rule in Axe().run(tab, options=_AXE).response["violations"]:
            if rule["impact"] in ("serious", "critical"):
                places = [
                    f"{node['target'][0]} ({node['any'][0]['message'] if node['any'] else ''})"
                    for node in rule["nodes"]
                ]
                found.append(f"{path}: {rule['id']}, {len(places)} times, as at {places[0]}")
    assert not found, "\n".join(found)


def test_axe_would_find_something(open_page):
    from axe_playwright_python.sync_playwright import Axe

    tab = open_page("index.html")
    tab.evaluate("document.querySelector('main').insertAdjacentHTML('beforeend', '<button></button>')")
    assert "button-name" in [rule["id"] for rule in Axe().run(tab, options=_AXE).response["violations"]]


# the gallery


def expected(**wanted):
    """The slugs that a choice should leave."""
    return sum(
        all(getattr(one, name) == value for name, value in wanted.items()) for one in papers.catalogue().values()
    )


def test_filters_choose_and_stand_in_the_address(open_page, base):
    tab = open_page("gallery.html")
    everything = len(papers.catalogue())
    assert shown(tab, "[data-card]").count() == everything
    tab.get_by_label("Theme").select_option("circuits")
    assert shown(tab, "[data-card]").count() == expected(theme="circuits")
    tab.get_by_label("Carried by").select_option("A")
    left = expected(theme="circuits", tier="A")
    assert shown(tab, "[data-card]").count() == left
    assert "theme=circuits" in tab.url and "tier=A" in tab.url
    assert tab.get_by_role("status").inner_text() == f"{left} of {everything} papers"
    again = open_page(tab.url.removeprefix(f"{base}/"))
    assert shown(again, "[data-card]").count() == left and again.get_by_label("Theme").input_value() == "circuits"
    tab.get_by_role("button", name="Clear").click()
    tab.wait_for_function("!location.search")
    assert shown(tab, "[data-card]").count() == everything


def test_verdict_technique_venue_and_free_text(open_page):
    tab = open_page("gallery.html?text=sentiment+tigges")
    assert shown(tab, "[data-card] a").first.get_attribute("href") == f"papers/{SLUG}.html"
    assert shown(tab, "[data-card]").count() == 1
    for query in ("technique=controls", "venue=ATTRIB+%40+NeurIPS+2023&theme=representations", "verdict=open"):
        tab.goto(re.sub(r"\?.*", f"?{query}", tab.url))
        links = [link.get_attribute("href") for link in shown(tab, "[data-card] a").all()]
        assert f"papers/{SLUG}.html" in links, query
        assert 0 < shown(tab, "[data-card]").count() < len(papers.catalogue()), query
    tab.goto(re.sub(r"\?.*", "?text=nothing-is-called-so", tab.url))
    assert shown(tab, "[data-card]").count() == 0 and not shown(tab, "#planned").count()


def test_filters_by_keyboard_alone(open_page):
    tab = open_page("gallery.html", "phone")
    tab.get_by_label("Search", exact=True).last.focus()
    tab.keyboard.type("sentiment linear")
    assert "text=sentiment" in tab.url and shown(tab, "[data-card]").count() == 1
    for _ in range(12):
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.getAttribute('href')") == f"papers/{SLUG}.html":
            break
    tab.keyboard.press("Enter")
    tab.wait_for_url(f"**/papers/{SLUG}.html")


def test_without_scripts_everything_is_there_to_read(open_page):
    tab = open_page("gallery.html", java_script_enabled=False)
    assert shown(tab, "[data-card]").count() == len(papers.catalogue()) and not shown(tab, ".filters").count()
    tab = open_page(f"papers/{SLUG}.html", java_script_enabled=False)
    fold = tab.locator("details.above-input").first
    fold.locator("summary").click()
    assert fold.locator(".highlight").first.is_visible() and not shown(tab, ".code-switch").count()


# pages


def test_code_is_folded_by_a_switch_that_is_remembered(open_page):
    tab = open_page(f"papers/{SLUG}.html")
    code = tab.locator("details.above-input .highlight").first
    assert not code.is_visible()
    switch = tab.get_by_role("button", name="Show all code")
    switch.click()
    assert code.is_visible()
    tab.reload()
    assert tab.locator("details.above-input .highlight").first.is_visible()
    tab.get_by_role("button", name="Fold all code").click()
    assert not tab.locator("details.above-input .highlight").first.is_visible()


def test_solutions_are_folded_and_formulas_drawn(open_page):
    tab = open_page(f"papers/{SLUG}.html")
    solution = tab.locator("details", has=tab.get_by_text("Solution", exact=True)).first
    assert not solution.locator(".highlight").first.is_visible()
    solution.locator("summary").click()
    assert solution.locator(".highlight").first.is_visible()
    formula = tab.locator("math[display='block']").first
    formula.scroll_into_view_if_needed()
    assert formula.bounding_box()["height"] > 10


def test_commands_can_be_copied(open_page, base):
    tab = open_page(f"papers/{SLUG}.html", permissions=["clipboard-read", "clipboard-write"])
    box = tab.locator(".runbox .highlight").first
    box.hover()
    box.locator("button.copybtn").click()
    tab.wait_for_timeout(200)
    assert tab.evaluate("navigator.clipboard.readText()").strip() == f"make run PAPER={SLUG}"


def test_a_claim_can_be_linked_and_leads_to_its_section(open_page):
    tab = open_page(f"papers/{SLUG}.html#claim-c2")
    assert tab.locator("#claim-c2").is_visible()
    tab.locator("#claim-c2 h3 a").last.click()
    tab.wait_for_url("**#c2-*")
    assert tab.get_by_role("heading", name=re.compile("^C2")).last.is_visible()


def test_the_scoreboard_sorts(open_page):
    tab = open_page("scoreboard.html")

    def values():
        found = tab.eval_on_selector_all("tr[data-value]", "rows => rows.map(row => row.dataset.value)")
        return [float(value) for value in found if value]

    tab.get_by_role("button", name="Here").click()
    assert values() == sorted(values())
    tab.get_by_role("button", name="Here").click()
    assert values() == sorted(values(), reverse=True)
    assert tab.locator("th[aria-sort='descending']").inner_text().startswith("Here")
    tab.get_by_role("button", name="Verdict").press("Enter")
    verdicts = tab.eval_on_selector_all("tr[data-verdict]", "rows => rows.map(r => r.dataset.verdict)")
    assert verdicts == sorted(verdicts)


def test_no_word_of_a_drawing_is_cut_off(open_page):
    for path in ("teach/index.html", "model.html"):
        tab = open_page(path)
        outside = tab.eval_on_selector_all(
            "main svg[viewBox] text",
            """texts => texts.filter(text => {
                const [box, all] = [text.getBBox(), text.ownerSVGElement.viewBox.baseVal];
                return box.x < 0 || box.y < 0 || box.x + box.width > all.width || box.y + box.height > all.height;
            }).map(text => text.textContent)""",
        )
        assert not outside, outside


def test_the_theme_follows_the_system_and_the_switch(open_page):
    ground = "getComputedStyle(document.body).backgroundColor"
    light, dark = open_page("index.html"), open_page("index.html", scheme="dark")
    assert sum(map(int, re.findall(r"\d+", light.evaluate(ground))[:3])) > 600
    assert sum(map(int, re.findall(r"\d+", dark.evaluate(ground))[:3])) < 150
    image = dark.locator(".hero img")
    assert image.evaluate("one => getComputedStyle(one).backgroundColor") == "rgb(255, 255, 255)", (
        "figures stay readable"
    )


def test_search_finds_a_notebook(open_page):
    tab = open_page("search.html?q=sentiment")
    tab.wait_for_selector("#search-results li a")
    links = tab.eval_on_selector_all("#search-results li a", "links => links.map(l => l.getAttribute('href'))")
    assert any(f"papers/{SLUG}" in link for link in links)
