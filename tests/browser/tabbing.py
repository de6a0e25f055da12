"""What can be reached and worked with the keyboard alone."""

from chromium import Page

CONTROLS = """
window.controls = [...document.querySelectorAll(
  "a[href], button, input, select, textarea, summary, [tabindex='0']")].filter(
  element => element.checkVisibility({visibilityProperty: true}) && !element.disabled
    && element.tabIndex >= 0);
controls.length
"""
FOCUS = """
(() => {
  const element = document.activeElement, style = getComputedStyle(element);
  const seen = (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0)
    || style.boxShadow !== "none";
  return [controls.indexOf(element), seen];
})()
"""
NAME = """
(element => `${element.tagName.toLowerCase()} ${(element.ariaLabel || element.textContent
  || element.name || element.id).trim().slice(0, 60)}`)(controls[%d])
"""


def unreachable(page: Page) -> list[str]:
    """Return the controls that Tab does not reach, or where the focus is not visible."""
    count, seen = page.value(CONTROLS), set()
    for _ in range(count + 1):
        page.press("Tab", settle=False)
        number, visible = page.value(FOCUS)
        if visible:
            seen.add(number)
    return [page.value(NAME % number) for number in range(count) if number not in seen]


def focus(page: Page, selector: str, *, most: int = 400, shift: bool = False) -> None:
    """Press Tab, or Shift and Tab, until the element that a selector names has the focus."""
    here = f"document.activeElement.matches({selector!r})"
    for _ in range(most):
        page.press("Tab", settle=False, shift=shift)
        if page.value(here):
            page.settle()
            return
    raise AssertionError(f"{selector} is not reached within {most} tabs")
