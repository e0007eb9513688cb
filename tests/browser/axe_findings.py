"""What axe-core finds wrong with a page."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

AXE = Path(__file__).parent / "axe" / "axe.min.js"

# A card that is still being turned is paler than it will be, so movements end first; those that repeat never do.
FINDINGS = """async () => {
  const ending = document.getAnimations().filter(({ effect }) => effect.getComputedTiming().endTime !== Infinity);
  await Promise.allSettled(ending.map(({ finished }) => finished));
  const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
  const { violations } = await axe.run(document, { runOnly: tags });
  return violations.flatMap(({ id, nodes }) => nodes.map(({ html, target }) => [id, target.join(" "), html]));
}"""

GRADIOS_OWN = {
    # Drop zones are called by what they do, which is not what they show; the picture beside says what they show.
    ("label-content-name-mismatch", "upload-container"),
    ("image-redundant-alt", "upload-container"),
}


def axe_findings(page: Page) -> list[list[str]]:
    """Each with its rule, its place and its markup, without those in components that are Gradio's own."""
    if not page.evaluate("'axe' in window"):
        page.add_script_tag(path=AXE)
    findings = page.evaluate(FINDINGS)
    return [one for one in findings if not any(one[0] == rule and part in one[2] for rule, part in GRADIOS_OWN)]
