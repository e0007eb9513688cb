"""How the page looks: calm, with strong contrast in light and dark, and no font or style from another machine."""

from __future__ import annotations

from pathlib import Path

import gradio as gr
from gradio.themes.utils import colors

SYSTEM_FONTS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Noto Sans", "sans-serif")
MONO_FONTS = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")

STYLESHEETS = sorted(Path(__file__).parent.glob("*.css"))
"""What the theme cannot say; `page.css` for all tabs, the others for single ones."""


VALUES = {
    "body_background_fill": "*neutral_50",
    "body_background_fill_dark": "*neutral_950",
    "body_text_color": "*neutral_800",
    "body_text_color_dark": "*neutral_100",
    # Gradio's own grey is below 4.5:1 on these backgrounds.
    "body_text_color_subdued": "*neutral_600",
    "body_text_color_subdued_dark": "*neutral_300",
    "color_accent": "*primary_700",
    "link_text_color": "*primary_700",
    "link_text_color_dark": "*primary_300",
    "link_text_color_hover": "*primary_800",
    "link_text_color_hover_dark": "*primary_200",
    "block_background_fill": "white",
    "block_background_fill_dark": "*neutral_900",
    "block_border_width": "1px",
    "block_border_color": "*neutral_200",
    "block_border_color_dark": "*neutral_700",
    "block_label_text_color": "*neutral_700",
    "block_label_text_color_dark": "*neutral_200",
    "block_info_text_color": "*neutral_600",
    "block_info_text_color_dark": "*neutral_300",
    "block_title_text_weight": "600",
    "input_border_width": "1px",
    "input_background_fill": "white",
    "input_background_fill_dark": "*neutral_800",
    "input_border_color": "*neutral_400",
    "input_border_color_dark": "*neutral_500",
    "input_border_color_focus": "*primary_600",
    "input_border_color_focus_dark": "*primary_400",
    "input_placeholder_color": "*neutral_500",
    "input_placeholder_color_dark": "*neutral_400",
    "button_primary_background_fill": "*primary_700",
    "button_primary_background_fill_hover": "*primary_800",
    "button_primary_background_fill_dark": "*primary_400",
    "button_primary_background_fill_hover_dark": "*primary_300",
    "button_primary_text_color": "white",
    "button_primary_text_color_dark": "*neutral_950",
    "button_secondary_border_color": "*neutral_400",
    "button_secondary_border_color_dark": "*neutral_500",
    "button_border_width": "1px",
    "checkbox_background_color_selected": "*primary_700",
    "checkbox_background_color_selected_dark": "*primary_500",
    "slider_color": "*primary_700",
    "slider_color_dark": "*primary_400",
    "checkbox_border_color": "*neutral_500",
    "checkbox_border_color_dark": "*neutral_400",
}
"""Of the theme's variables; a name with a star is another variable."""


def build_theme() -> gr.themes.Base:
    """Colours, type and spacing; `page.css` adds what Gradio's own components lack."""
    theme = gr.themes.Base(
        primary_hue=colors.teal,
        secondary_hue=colors.teal,
        neutral_hue=colors.slate,
        font=SYSTEM_FONTS,
        font_mono=MONO_FONTS,
        radius_size=gr.themes.sizes.radius_md,
        text_size=gr.themes.sizes.text_md,
    )
    return theme.set(**VALUES)
