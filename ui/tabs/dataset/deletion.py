"""Deleting a dataset: asked for, confirmed, done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gradio as gr

from ui.context import PageContext
from ui.errors import shows_errors
from ui.html import base as render
from ui.tabs.dataset.prepare import delete_dataset


@dataclass(frozen=True, kw_only=True)
class DeletionPart:
    """Its components."""

    delete: gr.Button
    certain: gr.Row
    really: gr.Button
    back: gr.Button
    note: gr.HTML


def build_deletion() -> DeletionPart:
    """Lay it out; hidden until a dataset is chosen."""
    with gr.Row():
        delete = gr.Button(
            "Delete this dataset", variant="stop", visible=False, min_width=160, elem_id="delete-dataset"
        )
    with gr.Row(visible=False) as certain:
        really = gr.Button(
            "Yes, delete its clips, texts and uploads", variant="stop", min_width=200, elem_id="really-delete-dataset"
        )
        back = gr.Button("No, keep it", min_width=120, elem_id="keep-dataset")
    return DeletionPart(
        delete=delete,
        certain=certain,
        really=really,
        back=back,
        note=gr.HTML(render.NOTHING, elem_id="dataset-deleted"),
    )


def connect_deletion(
    context: PageContext, part: DeletionPart, chosen: gr.Dropdown, opened: list[Any], show: Callable[[str], list[Any]]
) -> None:
    """Make it work; `show` gives values for `opened`, which are what a chosen dataset changes."""
    quiet: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}

    def delete(name: str | None) -> list[Any]:
        """Delete it and say what stays."""
        delete_dataset(context, name)
        gone = f"<strong>{render.escaped(name or '')}</strong> was deleted. Voices that were made of it stay."
        return [render.says("", gone), gr.update(visible=False), *show("")]

    chosen.change(
        lambda name: [gr.update(visible=bool(name)), gr.update(visible=False)],
        chosen,
        [part.delete, part.certain],
        **quiet,
    )
    part.delete.click(lambda: gr.update(visible=True), None, part.certain, **quiet)
    part.back.click(lambda: gr.update(visible=False), None, part.certain, **quiet)
    part.really.click(
        shows_errors(delete),
        chosen,
        [part.note, part.certain, *opened],
        show_progress="hidden",
        api_name="delete_dataset",
        api_visibility="undocumented",
    )
