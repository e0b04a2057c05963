"""What can be wrong with a page that a browser shows: too wide, cut off, hard to read, or asking for something."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from browser import Browser

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# what sticks out of the window, but in boxes that scroll
OUTSIDE = """[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, .plot svg') && e.getClientRects().length
    && (e.getBoundingClientRect().right > document.documentElement.clientWidth + 1 || e.getBoundingClientRect().left < -1))
    .map(e => e.outerHTML.slice(0, 200))"""
# texts in sight whose contrast with what is behind them is below 4.5, the least of the guidelines for accessible pages
FAINT = """(() => {
    const parts = colour => colour.match(/[\\d.]+/g).map(Number);
    const luminance = colour => parts(colour).slice(0, 3).map(c => c / 255)
        .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4).reduce((sum, c, k) => sum + c * [0.2126, 0.7152, 0.0722][k], 0);
    const behind = e => { for (; e; e = e.parentElement) {
        const colour = getComputedStyle(e).backgroundColor;
        if (parts(colour)[3] !== 0) return colour;
    } return 'rgb(255, 255, 255)' };
    const found = [], texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const e = texts.currentNode.parentElement;
        if (!texts.currentNode.data.trim() || !e.checkVisibility() || e.closest('style, title')) continue;
        const own = getComputedStyle(e), ink = luminance(e.closest('svg') ? own.fill : own.color), paper = luminance(behind(e));
        const contrast = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
        if (contrast < 4.5) found.push([texts.currentNode.data.slice(0, 60), contrast]);
    }
    return found })()"""
# tables in sight that are wider than their boxes, by what they say of themselves
WIDE = """[...document.querySelectorAll('.scroll')].filter(e => e.checkVisibility() && e.scrollWidth > e.clientWidth)
    .map(e => e.ariaLabel.slice(0, 60))"""
# tables in sight of which it cannot be seen whether they go on, or that say so and do not
SILENT = """new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done([...document.querySelectorAll('.scroll')]
    .filter(e => e.checkVisibility() && (!getComputedStyle(e).backgroundImage.includes('gradient')
        || (e.scrollWidth > e.clientWidth) != (parseFloat(getComputedStyle(e, '::after').fontSize) > 0))).map(e => e.ariaLabel)))))"""


def troubles(browser: Browser, path: Path, width: int, dark: bool, cut: bool = True) -> dict[str, Any]:
    """What is wrong with a page in a window so wide, by day or by night; nothing where all is well.

    cut: whether a table may be wider than its box, which then has to be seen
    """
    browser.size(width)
    browser.media(dark=dark)
    browser.complaints.clear()
    browser.requests.clear()
    browser.open(path)
    found = {"too wide": browser.ask(OVERFLOW), "outside": browser.ask(OUTSIDE), "faint": browser.ask(FAINT),
             "scrolls unseen": browser.ask(SILENT), "cut off": [] if cut else browser.ask(WIDE), "complaints": browser.complaints[:],
             "requests": [address for address in browser.requests if address != path.resolve().as_uri()],
             "hacked": browser.ask("typeof window.hacked") != "undefined"}
    browser.media()
    return {what: value for what, value in found.items() if value}
