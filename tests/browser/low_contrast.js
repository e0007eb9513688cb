// Lists visible text whose contrast with its background is below WCAG's AA (4.5:1, large text 3:1). Disabled
// controls are exempt; what lies behind a picture or a gradient is not looked at.
() => {
  const parse = (color) => {
    const numbers = color.match(/[\d.]+/g).map(Number);
    const scale = color.startsWith("color(srgb") ? 255 : 1;
    return { rgb: numbers.slice(0, 3).map((value) => value * scale), alpha: numbers[3] ?? 1 };
  };
  const linear = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = (rgb) => rgb.map(linear).reduce((sum, value, i) => sum + value * [0.2126, 0.7152, 0.0722][i], 0);
  const backgroundOf = (element) => {
    for (; element; element = element.parentElement) {
      const { rgb, alpha } = parse(getComputedStyle(element).backgroundColor);
      if (alpha > 0.99) return rgb;
    }
    return [255, 255, 255];
  };
  const shows = (element) => {
    const isField = element.matches(
      "textarea, input:not([type=checkbox]):not([type=radio]):not([type=range]):not([type=file])",
    );
    if (isField) return element.value || element.placeholder;
    return [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const isSeen = element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
    if (!isSeen || element.closest("[disabled], script, style") || !shows(element)) continue;
    const isPlaceholder = element.placeholder && !element.value;
    const style = getComputedStyle(element, isPlaceholder ? "::placeholder" : null);
    const { rgb, alpha } = parse(style.color);
    const background = backgroundOf(element);
    const seen = rgb.map((value, i) => value * alpha + background[i] * (1 - alpha));
    const [lighter, darker] = [luminance(seen), luminance(background)].sort((a, b) => b - a);
    const ratio = (lighter + 0.05) / (darker + 0.05);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (isLarge ? 3 : 4.5)) found.push(`${ratio.toFixed(2)} ${element.outerHTML.slice(0, 120)}`);
  }
  return found;
}
