"""The Data tab: recordings become clips with transcripts, and the user decides which to learn from."""

from __future__ import annotations

import threading
from typing import Any

import gradio as gr
from gradio.blocks import Block

from backend.dataset.clips.build_job import BuildJob
from backend.dataset.sources.material import proposed_name
from backend.dataset.storage.lock import is_locked
from backend.errors import EncoreError
from backend.store.trash import Deleted
from backend.transcription.catalogue import PUBLISHED_WHISPERS
from backend.voices.consent import SpokenProof
from training.machine import Machine
from ui.bar.bar import fixed_html
from ui.consent import Stated, of_another_recording, read_consent
from ui.context import PageContext
from ui.events import FOCUS_REFUSAL, HIDE, SHOW, Update, answered_in, bind
from ui.fields import Confirmation, FormIncomplete, build_consent, build_language, language_choices
from ui.html.messages import NOTHING, says
from ui.html.templates import html
from ui.html.words import purpose_in_words, size_in_words
from ui.material import (
    gather_material,
    is_part_of,
    names_given,
    parse_actors,
    plan_build,
    voice_name,
    without_unused,
)
from ui.source import Reference, Source, VoiceFields
from ui.tabs.dataset.clip_editor import ClipEditor
from ui.tabs.dataset.clips import ClipsPart
from ui.tabs.dataset.render import cancelling_html, progress_html, sources_line
from ui.undo import Undo
from ui.words.sentences import translated
from ui.words.words import say, word

NEW = ""
"""Chosen instead of a dataset: one that is yet to be made."""

POLL_SECONDS = 1.0


class DatasetTab:
    """Builds a dataset of what was given here and on the Speak tab, and shows its clips."""

    def __init__(self, context: PageContext, tab: gr.Tab, voice: VoiceFields) -> None:
        self.context, self.voice = context, voice
        self._cancelling: set[tuple[str, float]] = set()
        self._is_there = Machine.here().address is not None
        with gr.Row(elem_id="data-top"):
            fixed_html(html('<h2 data-word="data.title">Data</h2>'), "data-title")
            # Nothing is chosen before the tab is opened: then it is what is being built, if anything is.
            self.chosen = gr.Dropdown(
                [("…", NEW)],
                value=None,
                label=word("data.dataset"),
                show_label=False,
                min_width=200,
                scale=2,
                elem_id="dataset",
            )
            self.replace = gr.Button(
                word("data.replace"), size="sm", visible=False, min_width=90, scale=0, elem_id="replace-dataset"
            )
            self.delete = gr.Button(
                word("data.delete"), size="sm", visible=False, min_width=90, scale=0, elem_id="delete-dataset"
            )
        self.confirmation = Confirmation(word("data.really_delete"), "-dataset")
        self.replacing = Confirmation(word("data.really_replace"), "-replaced")
        self.undo = Undo(context, "dataset")
        self.deleted = gr.HTML(NOTHING, elem_id="dataset-deleted")
        with gr.Column(elem_id="adding") as self.adding:
            self._build_form()
        with gr.Column(elem_id="building"):
            self.progress = gr.HTML(NOTHING, elem_id="prepare-progress")
            self.cancel = gr.Button(
                word("data.cancel"), visible=False, size="sm", min_width=100, elem_id="cancel-prepare"
            )
        self.seen = gr.State(None)
        # Whether the name was typed: only then it stays whatever is chosen.
        self.typed = gr.State(False)
        self.timer = gr.Timer(POLL_SECONDS, active=False)
        self.clips = ClipsPart(context, self.chosen)
        self.editor = ClipEditor(self.clips)
        self._connect(tab)
        # Ray takes seconds to load: best while the user is still busy on the first tab.
        bind(context.page.load, self._warm_up, quick=True)

    def _build_form(self) -> None:
        """What clips are made of; folded where there are some already."""
        with gr.Accordion(word("data.add"), open=True, elem_id="add-recordings") as self.fold:
            with gr.Row(elem_id="add-row"):
                self.files = gr.File(
                    label=word("data.files"),
                    file_count="multiple",
                    height=176,
                    scale=3,
                    min_width=280,
                    elem_id="dataset-files",
                )
                with gr.Column(scale=2, min_width=260):
                    self.name = gr.Textbox(label=word("data.name"), max_length=64, elem_id="dataset-name")
                    self.mix = gr.Checkbox(value=True, label="…", visible=False, elem_id="dataset-mix")
                    self.sources = gr.HTML(NOTHING, elem_id="dataset-sources")
                    self.prepare = gr.Button(word("data.prepare"), variant="primary", elem_id="prepare")
                    self.refused = gr.HTML(NOTHING, elem_id="prepare-refused", js_on_load=FOCUS_REFUSAL)
            with gr.Accordion(word("data.consent"), open=False, elem_id="dataset-consent-section"):
                self.statement, self.who = build_consent(self.context, "dataset-")
            self.signed = gr.State("")
            with gr.Accordion(word("data.engineers"), open=False, elem_id="dataset-engineers"), gr.Row():
                self.language = build_language(min_width=170, elem_id="dataset-language")
                self.whisper = gr.Dropdown(
                    whisper_choices(),
                    value="",
                    label=word("data.whisper"),
                    info=word("data.whisper_help"),
                    allow_custom_value=True,
                    min_width=220,
                    elem_id="dataset-whisper",
                )
                self.context.when_opened[self.whisper] = lambda: gr.update(choices=whisper_choices())
                # Not gr.Number, which turns an empty field into 0.
                self.actors = gr.Textbox(
                    placeholder=word("data.actors_default"),
                    max_length=3,
                    label=word("data.actors"),
                    info=word("data.actors_help"),
                    min_width=170,
                    elem_id="dataset-actors",
                )

    @property
    def following(self) -> list[Block]:
        """What `_follow` changes."""
        return [self.seen, self.progress, self.adding, self.prepare, self.cancel, self.timer]

    def _connect(self, tab: gr.Tab) -> None:
        given = {"references": self.voice.references, "source": self.voice.source, "files": self.files}
        opened = [self.name, self.typed, *self.following, *self.clips.listing]
        chosen = {"chosen": self.chosen}
        bind(
            tab.select,
            self._refresh,
            {**chosen, **given, "name": self.name, "typed": self.typed},
            [self.chosen, self.sources, self.mix, self.language, *opened],
            api="list_datasets",
        )
        listed = [self.sources, self.mix, self.statement, self.signed]
        bind(self.files.change, self._list_files, {**given, **chosen}, listed, quick=True)
        filed = {"files": self.files}
        bind(self.statement.input, lambda files: {self.signed: _sign(files)}, filed, self.signed, quick=True)
        another = {**chosen, "source": self.voice.source}
        bind(self.chosen.input, self._choose, another, opened, api="choose_dataset")
        typing = {"name": self.name}
        bind(self.name.input, self._note_typing, typing, self.typed, api="type_dataset_name", quick=True)
        material = {
            **given,
            **chosen,
            "transcript": self.voice.transcript,
            "given_statement": self.voice.statement,
            "given_who": self.voice.who,
            "proof": self.voice.proof,
            "given_signed": self.voice.signed,
            "name": self.name,
            "language": self.language,
            "whisper": self.whisper,
            "actors": self.actors,
            "mix": self.mix,
            "statement": self.statement,
            "who": self.who,
            "signed": self.signed,
        }
        begun = [self.chosen, self.name, self.typed, self.refused, *self.following]
        bind(self.prepare.click, answered_in(self.refused, self._prepare), material, begun, api="prepare_dataset")
        replaced = [*begun, self.replacing.row, *self.undo.shown]
        bind(
            self.replacing.really.click,
            answered_in(self.refused, self._replace),
            material,
            replaced,
            api="replace_dataset",
        )
        bind(self.replace.click, self._ask_to_replace, chosen, [self.replacing.row, self.replacing.really], quick=True)
        bind(
            self.timer.tick,
            self._tick,
            {**chosen, "seen": self.seen},
            [*self.following, *self.clips.listing],
            api="follow_dataset",
            quick=True,
        )
        cancelled = [self.seen, self.progress, self.cancel]
        bind(self.cancel.click, self._cancel, chosen, cancelled, api="cancel_dataset", quick=True)
        self._connect_deletion(opened)

    def _connect_deletion(self, opened: list[Block]) -> None:
        chosen = {"chosen": self.chosen}
        offered: list[Block] = [self.delete, self.replace, self.prepare, self.fold]
        rows: list[Block] = [self.confirmation.row, self.replacing.row]
        bind(self.chosen.change, self._offer_deletion, chosen, [*offered, *rows], quick=True)
        self.confirmation.ask_on(self.delete)
        bind(
            self.confirmation.really.click,
            self._delete,
            {**chosen, "source": self.voice.source},
            [self.deleted, self.confirmation.row, self.chosen, *opened, *self.undo.shown],
            api="delete_dataset",
        )
        self.undo.connect(self._restore, {}, [self.deleted, self.chosen, *opened])

    def _refresh(
        self,
        chosen: str | None,
        references: list[Reference],
        source: Source | None,
        files: list[str] | None,
        name: str,
        typed: bool,
    ) -> Update:
        """The datasets there are now, and what is to be prepared."""
        names = self.context.studio.datasets.list()
        value = chosen if chosen in (NEW, *names) else self._at_hand(names)
        update: Update = {
            **self._choices(value),
            **self._list_sources(references, source, files, value),
            self.language: gr.update(choices=language_choices(self.context.studio.loaded)),
            **self._show(value),
        }
        if name and typed:
            return update
        return {**update, self.name: self._name_for(value, source)}

    def _at_hand(self, names: list[str]) -> str:
        """What one wants to see when one comes back: a build that is running."""
        return next((name for name in names if self._is_building(name)), NEW)

    def _is_building(self, name: str) -> bool:
        try:
            return self.context.studio.datasets.progress(name).is_running
        except EncoreError:
            return False

    def _name_for(self, chosen: str | None, source: Source | None) -> str:
        """The name of the dataset that is chosen, or one for the voice that another would be made of."""
        return chosen or proposed_name(voice_name(source), self.context.studio.datasets.list())

    def _note_typing(self, name: str) -> Update:
        """What was typed stays; an emptied field is filled in again."""
        return {self.typed: bool(name.strip())}

    @property
    def beginning(self) -> list[Block]:
        """What `begin` changes."""
        return [self.chosen, self.name, self.typed, self.files]

    def begin(self) -> Update:
        """Get ready to make a dataset of the voice on the Speak tab, and of nothing that was chosen here before."""
        return {self.chosen: NEW, self.name: "", self.typed: False, self.files: None}

    def _choices(self, value: str) -> Update:
        names = self.context.studio.datasets.list()
        choices = [(say("data.new"), NEW), *((one, one) for one in names)]
        return {self.chosen: gr.update(choices=choices, value=value)}

    def _show(self, name: str) -> Update:
        """A dataset, and no clip of it."""
        return {**self._follow(name, None)[0], **self.clips.open(name)}

    def _choose(self, chosen: str | None, source: Source | None) -> Update:
        """Show another dataset."""
        return {self.name: self._name_for(chosen, source), self.typed: False, **self._show(chosen or NEW)}

    def _list_sources(
        self, references: list[Reference], source: Source | None, files: list[str] | None, chosen: str | None
    ) -> Update:
        """What would be prepared, and whether what the Speak tab has is part of it: never beside other recordings
        unless that is asked for.
        """
        names = names_given(references, source)
        recordings = gather_material([], None, "", files or []).recordings
        listed = ", ".join(names[:2]) + (" …" if len(names) > 2 else "")
        return {
            self.sources: sources_line(len(files or []), has_voice=bool(names)),
            self.mix: gr.update(
                label=say("data.from_speak", names=listed),
                visible=bool(names),
                value=bool(names) and not recordings and not chosen,
            ),
        }

    def _list_files(
        self, references: list[Reference], source: Source | None, files: list[str] | None, chosen: str | None
    ) -> Update:
        """Other files: what was stated of those before is not true of them."""
        unsigned: Update = {self.statement: gr.update(value=None), self.signed: ""}
        return {**self._list_sources(references, source, files, chosen), **unsigned}

    def _prepare(self, chosen: str | None, name: str, mix: bool, **given: Any) -> Update:
        """Start a build: recordings are added to the dataset that is chosen, and anything else makes another one."""
        datasets, wanted = self.context.studio.datasets, name.strip()
        if not chosen or chosen not in datasets.list() or wanted != chosen:
            return self._start(self._plan(datasets.free_name(wanted), with_voice=mix, **given))
        before = datasets.job(chosen)
        if given["files"] or mix:
            planned = self._plan(chosen, with_voice=mix, **given)
            return self._start(without_unused(datasets.added_to(chosen, planned), planned))
        voice = gather_material(given["references"], given["source"], given["transcript"])
        if voice.is_given and not is_part_of(voice, before):
            # Another voice is another dataset.
            free = proposed_name(voice_name(given["source"]), datasets.list())
            return self._start(self._plan(free, with_voice=True, **given))
        again = {"whisper": given["whisper"] or before.whisper, "num_actors": parse_actors(given["actors"] or "")}
        return self._start(before.model_copy(update=again))

    def _replace(self, chosen: str | None, name: str, mix: bool, **given: Any) -> Update:
        """Put the dataset that is chosen into the trash, and build one of the same name of what was given."""
        if not chosen:
            raise FormIncomplete(say("data.choose_first"))
        job = self._plan(chosen, with_voice=mix or not given["files"], **given)
        replaced = self.context.studio.datasets.start_build(job, replaces=True)
        offered = self.undo.offer(replaced, "fields.replaced") if replaced is not None else {}
        return {**self._begun(job), self.replacing.row: HIDE, **offered}

    def _ask_to_replace(self, chosen: str | None) -> Update:
        """Say what would go."""
        if not chosen:
            raise FormIncomplete(say("data.choose_first"))
        work = translated(self.context.studio.datasets.describe_work(chosen))
        return {self.replacing.row: SHOW, self.replacing.really: say("data.really_replace_work", work=work)}

    def _plan(
        self,
        name: str,
        *,
        with_voice: bool,
        references: list[Reference],
        source: Source | None,
        transcript: str,
        files: list[str] | None,
        given_statement: str | None,
        given_who: str,
        proof: SpokenProof | None,
        given_signed: str,
        language: str | None,
        whisper: str | None,
        actors: str,
        statement: str | None,
        who: str,
        signed: str,
    ) -> BuildJob:
        """The build of what was given. Raises EncoreError."""
        if statement and signed not in ("", _sign(files)):
            raise of_another_recording()
        stated = Stated(statement=given_statement, who=given_who, proof=proof, source=source, signed=given_signed)
        voice = (references, source, transcript) if with_voice else ([], None, "")
        return plan_build(
            self.context,
            gather_material(*voice, files or []),
            name=name,
            language=language or "auto",
            whisper=whisper or "",
            num_actors=parse_actors(actors or ""),
            stated=stated.by_content,
            consent=read_consent(statement, who) if statement else None,
        )

    def _start(self, job: BuildJob) -> Update:
        self.context.studio.datasets.start_build(job)
        return self._begun(job)

    def _begun(self, job: BuildJob) -> Update:
        return {**self._choices(job.name), self.name: job.name, self.typed: False, **self._follow(job.name, None)[0]}

    def _restore(self, deleted: Deleted) -> Update:
        """Bring a dataset back; one that replaced it goes into the trash instead."""
        self.context.studio.datasets.restore(deleted)
        back = html("<strong>{}</strong> {}", deleted.label, say("data.is_back"))
        return {self.deleted: says("good", back), **self._choices(deleted.label), **self._choose(deleted.label, None)}

    def _tick(self, chosen: str | None, seen: str | None) -> Update:
        """Progress of the build, and its clips at its end."""
        update, has_ended = self._follow(chosen or NEW, seen)
        return {**update, **self.clips.open(chosen or NEW)} if has_ended else update

    def _cancel(self, chosen: str | None) -> Update:
        """Ask the build to stop, and say so at once: it brings a clip or two to an end first."""
        if not chosen:
            return {}
        datasets = self.context.studio.datasets
        progress = datasets.progress(chosen)
        self._cancelling.add((chosen, progress.started_at))
        datasets.cancel(chosen)
        shown = cancelling_html(progress)
        return {self.seen: shown, self.progress: shown, self.cancel: gr.update(interactive=False)}

    def _offer_deletion(self, chosen: str | None) -> Update:
        """What can be done with a dataset that is there."""
        is_there = gr.update(visible=bool(chosen))
        return {
            self.delete: is_there,
            self.replace: is_there,
            self.prepare: say("data.add") if chosen else say("data.prepare"),
            self.fold: gr.update(open=not chosen, label=say("data.add") if chosen else say("data.new")),
            self.confirmation.row: HIDE,
            self.replacing.row: HIDE,
        }

    def _delete(self, chosen: str | None, source: Source | None) -> Update:
        """Delete it and say what stays."""
        if not chosen:
            raise FormIncomplete(say("data.choose_first"))
        deleted = self.context.studio.delete_dataset(chosen)
        gone = html("<strong>{}</strong> {}", chosen, say("data.was_deleted"))
        return {
            self.deleted: says("", gone),
            self.confirmation.row: HIDE,
            **self.undo.offer(deleted),
            **self._choices(NEW),
            **self._choose(NEW, source),
        }

    def _follow(self, name: str, seen: str | None) -> tuple[Update, bool]:
        """Progress of the build, unless the page has `seen` it; and whether the build has ended since."""
        try:
            progress = self.context.studio.datasets.progress(name) if name else None
        except EncoreError:
            progress = None
        is_running = progress is not None and progress.is_running
        is_cancelling = progress is not None and (name, progress.started_at) in self._cancelling
        shown = progress_html(
            progress,
            recordings=() if progress is None or is_running else self.context.studio.datasets.recordings(name),
            uses_ray=self._uses_ray(name),
            is_there=self._is_there,
            is_cancelling=is_cancelling,
        )
        if progress is not None and not is_running and seen and is_locked(self.context.settings.home_folder, name):
            # Its process is about to end; until then nothing can be edited.
            is_running, shown = True, says("", say("data.finishing"))
        if shown == seen:
            return {}, False
        update: dict[Block, Any] = {
            self.seen: shown,
            self.progress: shown,
            self.adding: gr.update(visible=not is_running),
            self.prepare: gr.update(interactive=not is_running),
            self.cancel: gr.update(visible=is_running, interactive=not is_cancelling),
            self.timer: gr.Timer(active=is_running),
        }
        return update, not is_running

    def _uses_ray(self, name: str) -> bool:
        try:
            return bool(name) and self.context.studio.datasets.job(name).num_actors != 0
        except EncoreError:
            return True

    def _warm_up(self) -> None:
        threading.Thread(target=lambda: self.context.studio.datasets, daemon=True, name="load-ray").start()


def whisper_choices() -> list[tuple[str, str]]:
    """What can transcribe: label and name."""
    return [
        (say("data.whisper_automatic"), ""),
        *(
            (f"{one.name}: {purpose_in_words(one.purpose)} ({size_in_words(one.num_bytes)})", one.name)
            for one in PUBLISHED_WHISPERS
        ),
        (say("data.whisper_none"), "none"),
    ]


def _sign(files: list[str] | None) -> str:
    """What stands for the files that a statement is chosen for."""
    return " ".join(sorted(files or []))
