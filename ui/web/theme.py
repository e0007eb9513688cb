"""How the page looks: calm, with strong contrast in light and dark, and no font or style from another machine."""

from __future__ import annotations

from pathlib import Path

import gradio as gr
from gradio.themes.utils import colors

SYSTEM_FONTS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Noto Sans", "sans-serif")
MONO_FONTS = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")

STYLESHEETS = sorted(Path(__file__).parent.glob("*.css"))
"""What the theme cannot say: `frame.css` for bar, sheet and player, `page.css` for what all tabs share, the others for
single tabs."""

FAVICON = Path(__file__).with_name("favicon.svg")


PAPER, SURFACE, INK, MUTED, LINE = "#fbfaf7", "#ffffff", "#0b1220", "#525c6b", "#e7e3da"
DARK_PAPER, DARK_SURFACE, DARK_INK, DARK_MUTED, DARK_LINE = "#0b1220", "#141d2f", "#f3f4f6", "#a9b4c6", "#26324a"
SOUND, SOUND_HOVER, DARK_SOUND, DARK_SOUND_HOVER = "#d63f1e", "#b52f12", "#ff7a5e", "#ff9680"
"""Coral, for what sounds and records: under white letters the light one must be darker than as a line."""

FIELD, DARK_FIELD = "#8b93a1", "#5d6b85"
"""Frames of fields, at three to one."""

VALUES = {
    "body_background_fill": PAPER,
    "body_background_fill_dark": DARK_PAPER,
    "background_fill_primary": SURFACE,
    "background_fill_primary_dark": DARK_SURFACE,
    "background_fill_secondary": PAPER,
    "background_fill_secondary_dark": DARK_PAPER,
    "border_color_primary": LINE,
    "border_color_primary_dark": DARK_LINE,
    "body_text_color": INK,
    "body_text_color_dark": DARK_INK,
    "body_text_color_subdued": MUTED,
    "body_text_color_subdued_dark": DARK_MUTED,
    "color_accent": INK,
    "color_accent_soft": "#f1efe9",
    "color_accent_soft_dark": DARK_LINE,
    "link_text_color": "*primary_700",
    "link_text_color_dark": "*primary_300",
    "link_text_color_hover": "*primary_800",
    "link_text_color_hover_dark": "*primary_200",
    "block_background_fill": SURFACE,
    "block_background_fill_dark": DARK_SURFACE,
    "block_border_width": "0px",
    "block_border_color": LINE,
    "block_border_color_dark": DARK_LINE,
    "block_shadow": "0 1px 2px rgb(11 18 32 / 5%), 0 4px 16px rgb(11 18 32 / 4%)",
    "block_shadow_dark": "none",
    "block_padding": "16px",
    "block_label_text_color": MUTED,
    "block_label_text_color_dark": DARK_MUTED,
    "block_label_background_fill": "transparent",
    "block_label_background_fill_dark": "transparent",
    "block_label_border_width": "0px",
    "block_label_shadow": "none",
    "block_title_text_color": INK,
    "block_title_text_color_dark": DARK_INK,
    "block_title_text_size": "*text_md",
    "block_title_text_weight": "600",
    "block_info_text_color": MUTED,
    "block_info_text_color_dark": DARK_MUTED,
    "panel_background_fill": "transparent",
    "panel_background_fill_dark": "transparent",
    "panel_border_width": "0px",
    "layout_gap": "16px",
    "input_border_width": "1px",
    "input_background_fill": SURFACE,
    "input_background_fill_dark": DARK_PAPER,
    "input_border_color": FIELD,
    "input_border_color_dark": DARK_FIELD,
    "input_border_color_focus": INK,
    "input_border_color_focus_dark": DARK_INK,
    "input_placeholder_color": "#6b7482",
    "input_placeholder_color_dark": "#94a0b5",
    "input_radius": "10px",
    "input_shadow": "none",
    "input_shadow_focus": "none",
    "button_primary_background_fill": SOUND,
    "button_primary_background_fill_hover": SOUND_HOVER,
    "button_primary_background_fill_dark": DARK_SOUND,
    "button_primary_background_fill_hover_dark": DARK_SOUND_HOVER,
    "button_primary_text_color": "white",
    "button_primary_text_color_dark": DARK_PAPER,
    "button_primary_border_color": "transparent",
    "button_primary_border_color_dark": "transparent",
    "button_primary_border_color_hover": "transparent",
    "button_primary_border_color_hover_dark": "transparent",
    "button_secondary_background_fill": "transparent",
    "button_secondary_background_fill_dark": "transparent",
    "button_secondary_background_fill_hover": "#f1efe9",
    "button_secondary_background_fill_hover_dark": DARK_LINE,
    "button_secondary_text_color": INK,
    "button_secondary_text_color_dark": DARK_INK,
    "button_secondary_border_color": FIELD,
    "button_secondary_border_color_dark": DARK_FIELD,
    "button_cancel_background_fill": "transparent",
    "button_cancel_background_fill_dark": "transparent",
    "button_cancel_background_fill_hover": "#fdecea",
    "button_cancel_background_fill_hover_dark": "#3a1a1d",
    "button_cancel_text_color": "#b3261e",
    "button_cancel_text_color_dark": "#fca5a5",
    "button_cancel_border_color": "#b3261e",
    "button_cancel_border_color_dark": "#fca5a5",
    "button_border_width": "1px",
    "button_large_radius": "12px",
    "button_small_radius": "10px",
    "button_large_padding": "10px 20px",
    "button_transition": "all 150ms ease",
    "checkbox_background_color_selected": INK,
    "checkbox_background_color_selected_dark": "*primary_500",
    "checkbox_border_color": FIELD,
    "checkbox_border_color_dark": DARK_FIELD,
    "checkbox_border_color_focus": INK,
    "checkbox_border_color_selected": INK,
    "checkbox_label_background_fill": "transparent",
    "checkbox_label_background_fill_dark": "transparent",
    "checkbox_label_background_fill_hover": "#f1efe9",
    "checkbox_label_background_fill_hover_dark": DARK_LINE,
    "checkbox_label_background_fill_selected": "#f1efe9",
    "checkbox_label_background_fill_selected_dark": DARK_LINE,
    "checkbox_label_border_color": LINE,
    "checkbox_label_border_color_dark": DARK_LINE,
    "checkbox_label_border_width": "1px",
    "checkbox_label_text_color": INK,
    "checkbox_label_text_color_dark": DARK_INK,
    "slider_color": INK,
    "slider_color_dark": DARK_INK,
    "accordion_text_color": INK,
    "accordion_text_color_dark": DARK_INK,
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
        radius_size=gr.themes.Size(xxs="2px", xs="4px", sm="8px", md="10px", lg="12px", xl="16px", xxl="24px"),
        text_size=gr.themes.sizes.text_md,
    )
    return theme.set(**VALUES)
