"""Voices as files: what goes out comes back in; what anybody else may have put into a file stays out."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import struct
import zipfile

import pytest
import torch
from safetensors.torch import load_file, save, save_file

from backend.background_tasks import TaskCancelled
from backend.errors import EncoreError
from backend.store.home import Home
from backend.voices import voice_archive, voice_file
from backend.voices.consent import Consent
from backend.voices.errors import VoiceError, VoiceFileInvalid, VoiceNameTaken
from backend.voices.prompts import VoicePrompts
from backend.voices.registry import Voices
from backend.voices.styles import VoiceStyle
from backend.voices.trial import try_to_speak
from tests.backend.voices.checkpoints import adapter_of, fine_tuned_checkpoint
from tests.golden import GOLDEN_CHECKPOINT
from tests.ui.recordings import write_voice
from training.model.checkpoint.digest import checkpoint_digest
from training.model.checkpoint.hashes import find_damage
from training.model.checkpoint.names import ADAPTER_FILE
from training.model.voice_model import VoiceModel

CONSENT = Consent.give("Anna", "speaker-agreed")


def registry(home):
    return Voices(Home(home))


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """A registry with a zero-shot and a fine-tuned voice, made once: decoding takes a process each time."""
    folder = tmp_path_factory.mktemp("originals")
    voices = registry(folder / "home")
    recording = write_voice(folder / "anna.wav", seconds=1.2)
    voice = voices.create_zero_shot("Anna B", recording, consent=CONSENT, model="mini", transcript="Hello.")
    VoicePrompts(VoiceModel.load(GOLDEN_CHECKPOINT, precision="fp32", device="cpu")).get(voice)
    checkpoint = fine_tuned_checkpoint(folder / "custom_voice")
    voices.add_fine_tuned("Anna C", {"custom_voice": checkpoint}, consent=CONSENT, model="tiny", reference=recording)
    return voices


@pytest.fixture
def exported(originals, tmp_path):
    """The zero-shot voice's file, with a prompt."""
    return originals.export("anna b", tmp_path)


@pytest.fixture
def tuned(originals, tmp_path):
    """The fine-tuned voice's file."""
    return originals.export("Anna C", tmp_path / "tuned.encore-voice")


def read_members(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_members(path, members, *, compression=zipfile.ZIP_STORED):
    """A voice file by hand, with a manifest of what is in it unless one is given."""
    members = dict(members)
    if members.get("manifest.json") is None:
        members.pop("manifest.json", None)
        digests = {
            name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in members.items()
        }
        members["manifest.json"] = json.dumps({"format": "encore-voice", "version": 1, "members": digests}).encode()
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def changed(path, **changes):
    """The file with members replaced, added or (None) removed, and a manifest that agrees."""
    members = read_members(path) | {"manifest.json": None} | changes
    return write_members(path, {name: content for name, content in members.items() if content or name in changes})


def assert_refused(tmp_path, path, match):
    """Not imported, with one line that says why and names no folder, and nothing left of it."""
    target = registry(tmp_path / "other")
    with pytest.raises(EncoreError, match=match) as caught:
        target.import_(path)
    assert "\n" not in str(caught.value)
    assert str(target.folder) not in str(caught.value)
    assert target.list() == ()
    assert not target.folder.exists() or list(target.folder.iterdir()) == []
    allowed = {"other", "scratch.safetensors", path.name, "tuned.encore-voice", "Anna-B.encore-voice"}
    assert {entry.name for entry in tmp_path.iterdir()} <= allowed


def test_a_zero_shot_voice_comes_back_as_it_was(originals, exported, tmp_path):
    assert exported.name == "Anna-B.encore-voice"
    original = originals.get("Anna B")
    came = registry(tmp_path / "other").import_(exported)
    assert (came.name, came.kind, came.transcript, came.consent) == ("Anna B", "zero-shot", "Hello.", original.consent)
    assert came.id != original.id
    assert came.provenance["imported"]["id"] == original.id
    assert came.reference.read_bytes() == original.reference.read_bytes()
    (prompt,), (original_prompt,) = came.prompts_folder.iterdir(), original.prompts_folder.iterdir()
    assert prompt.read_bytes() == original_prompt.read_bytes()


def test_a_fine_tuned_voice_comes_back_and_loads(originals, tuned, tmp_path):
    original = originals.get("Anna C")
    came = registry(tmp_path / "other").import_(tuned, name="Carla")
    assert came.name == "Carla"
    loaded = VoiceModel.load(came.variants["custom_voice"], precision="fp32", device="cpu")
    for name, tensor in load_file(original.variants["custom_voice"] / "model.safetensors").items():
        assert torch.equal(loaded.talker.state_dict()[name.removeprefix("talker.")], tensor)


def test_styles_travel_with_their_clips(tmp_path):
    """As a zero-shot voice, whose checkpoint nobody has to try: what is checked of styles is the same."""
    voices = registry(tmp_path / "home")
    recording = write_voice(tmp_path / "anna.wav", seconds=1.2)
    original = voices.create_zero_shot("Anna", recording, consent=CONSENT, model="mini", transcript="Hello.")
    style = VoiceStyle(name="calm", transcript="Slowly.")
    styled = original.model_copy(update={"styles": (style,)})
    styled.clip_of(style).parent.mkdir()
    write_voice(styled.clip_of(style), seconds=1.6)
    path = voice_file.export_voice(styled, tmp_path / "anna.encore-voice")
    came = registry(tmp_path / "other").import_(path)
    assert came.styles == (style,)
    assert came.clip_of(style).read_bytes() == styled.clip_of(style).read_bytes()
    member = f"styles/{style.file_name}"
    content = styled.clip_of(style).read_bytes()
    record = json.loads(read_members(path)["voice.json"])
    twice = json.dumps(record | {"styles": []}).encode()
    evil = json.dumps(record | {"styles": [{"name": "../evil", "transcript": "No."}]}).encode()
    broken = [
        ("without", {**read_members(path), "manifest.json": None}, member, "clips are not those of its styles"),
        ("unknown", {**read_members(path), "manifest.json": None, "voice.json": twice}, "", "not those of its styles"),
        ("named", {**read_members(path), "manifest.json": None, "voice.json": evil}, "", "voice.json is not valid"),
        ("other", {**read_members(path), "manifest.json": None, "styles/a.wav": content}, "", "does not belong"),
    ]
    for name, members, left_out, told in broken:
        members.pop(left_out, None)
        with pytest.raises(VoiceFileInvalid, match=told):
            registry(tmp_path / f"other-{name}").import_(write_members(tmp_path / f"{name}.encore-voice", members))


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    """A file of a voice with an adapter, and the voice; its base model is installed under its folder's name."""
    folder = tmp_path_factory.mktemp("adapted")
    voices, recording = registry(folder / "home"), write_voice(folder / "anna.wav", seconds=1.2)
    voice = voices.add_fine_tuned(
        "Anna D",
        {},
        adapter=adapter_of(folder / "run" / "adapter"),
        consent=CONSENT,
        model="tiny",
        reference=recording,
        transcript="Hello.",
    )
    return voices.export("Anna D", folder), voice


def test_a_voice_with_an_adapter_comes_back_in_kilobytes(adapted, tmp_path):
    path, original = adapted
    assert path.stat().st_size < 300_000
    other = registry(tmp_path / "other")
    came = other.import_(path)
    assert came.modes == original.modes == ("fine-tuned", "fine-tuned-in-context", "in-context", "x-vector")
    for name in ("adapter_config.json", "adapter_model.safetensors", "encore.json"):
        assert (came.adapter / name).read_bytes() == (original.adapter / name).read_bytes()
    assert find_damage(came.folder) == []
    deleted = other.delete("Anna D")
    assert not came.folder.exists()
    other.trash.restore(deleted.id)
    assert other.get("Anna D").adapter is not None


def test_an_adapter_has_to_speak_with_its_base_where_that_is_installed(adapted):
    """As the process does that tries an imported voice."""
    try_to_speak(GOLDEN_CHECKPOINT, "english", adapted[1].adapter)
    with pytest.raises(EncoreError, match="does not speak 'klingon'"):
        try_to_speak(GOLDEN_CHECKPOINT, "klingon", adapted[1].adapter)


@pytest.mark.parametrize(
    ("member", "content", "reason"),
    [
        ("adapter/adapter_config.json", b"{}", "not an adapter that can be used here"),
        ("adapter/adapter_config.json", b'{"peft_type": "LORA", "r": 0, "lora_alpha": 1}', "must be numbers above 0"),
        ("adapter/adapter_model.safetensors", b"x" * 64, "damaged"),
        ("adapter/adapter_model.safetensors", save({"talker.model.norm.weight": torch.ones(1)}), "which no adapter"),
        ("adapter/encore.json", b"[]", "must hold one JSON object"),
        ("adapter/model.safetensors", b"x", "does not belong in a voice file"),
    ],
)
def test_a_stranger_s_adapter_is_looked_at_before_the_voice_exists(adapted, tmp_path, member, content, reason):
    changed_file = tmp_path / "changed.encore-voice"
    changed_file.write_bytes(adapted[0].read_bytes())
    assert_refused(tmp_path, changed(changed_file, **{member: content}), reason)


def test_an_adapter_that_does_not_fit_its_base_is_refused(adapted, tmp_path, monkeypatch):
    monkeypatch.setattr(voice_file, "find_installed", lambda name: GOLDEN_CHECKPOINT)
    weights = {
        name: tensor[:, :3].contiguous() for name, tensor in load_file(adapted[1].adapter / ADAPTER_FILE).items()
    }
    content = save(weights, {"format": "pt", "base_sha256": checkpoint_digest(GOLDEN_CHECKPOINT)})
    copied = tmp_path / "changed.encore-voice"
    copied.write_bytes(adapted[0].read_bytes())
    assert_refused(
        tmp_path, changed(copied, **{"adapter/adapter_model.safetensors": content}), "does not fit this model"
    )


def test_two_exports_are_equal_and_a_taken_name_needs_another(originals, exported, tmp_path):
    again = originals.export("Anna B", tmp_path / "again.encore-voice")
    assert again.read_bytes() == exported.read_bytes()
    with pytest.raises(VoiceNameTaken):
        originals.import_(exported)
    other = registry(tmp_path / "other")
    before = originals.get("Anna B").consent
    assert before.who == CONSENT.who
    assert other.import_(exported, name="Anna Two").consent == other.import_(exported, name="Anna").consent == before


def test_a_file_does_not_tell_where_the_model_lies(originals, tmp_path):
    recording = originals.get("Anna B").reference
    voice = originals.create_zero_shot("Path", recording, consent=CONSENT, model=str(tmp_path / "secret" / "our-model"))
    exported = originals.export("Path", tmp_path / "path.encore-voice")
    originals.delete(voice.id)
    assert b"secret" not in exported.read_bytes()
    assert registry(tmp_path / "other").import_(exported).model == "our-model"


def test_a_file_that_cannot_be_written(originals, exported, tmp_path):
    with pytest.raises(VoiceError, match="cannot be written"):
        originals.export("Anna B", tmp_path / "no" / "folder.encore-voice")


@pytest.mark.parametrize(
    "name",
    [
        "../evil.json",
        "/etc/evil.json",
        "prompts/../../evil.safetensors",
        "custom_voice/../../config.json",
        "custom_voice\\config.json",
        "C:/config.json",
        "custom_voice/model.bin",
        "custom_voice/modeling.py",
        "prompts/",
        "reference.wav/x",
        "encore.sqlite",
    ],
)
def test_members_that_belong_into_no_voice(exported, tmp_path, name):
    assert_refused(tmp_path, changed(exported, **{name: b"x"}), "does not belong in a voice file")


def test_compressed_members_are_refused_before_they_are_opened(exported, tmp_path):
    members = read_members(exported) | {"reference.wav": bytes(8_000_000), "manifest.json": None}
    bomb = write_members(exported, members, compression=zipfile.ZIP_DEFLATED)
    assert bomb.stat().st_size < 1_000_000
    assert_refused(tmp_path, bomb, "compressed")


def test_members_that_share_their_bytes(exported, tmp_path):
    members = read_members(exported)
    config = b"{" + b" " * 2_000_000 + b"}"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.writestr("custom_voice/config.json", config)
        shared = archive.getinfo("custom_voice/config.json")
        for name in ("vocab.json", "tokenizer.json", "tokenizer_config.json"):
            twin = zipfile.ZipInfo(f"custom_voice/{name}")
            twin.header_offset, twin.file_size, twin.compress_size, twin.CRC = (
                shared.header_offset, shared.file_size, shared.compress_size, shared.CRC,
            )  # fmt: skip
            archive.filelist.append(twin)
            archive.NameToInfo[twin.filename] = twin
    exported.write_bytes(buffer.getvalue())
    assert_refused(tmp_path, exported, "overlap")


def test_the_same_name_twice(exported, tmp_path):
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(exported, "a") as archive:
        archive.writestr("reference.wav", b"another")
    assert_refused(tmp_path, exported, "same name")


def test_more_members_than_any_voice_has(exported, tmp_path):
    more = {f"prompts/{number:032x}.safetensors": b"x" for number in range(300)}
    assert_refused(tmp_path, changed(exported, **more), "300|30[0-9] members")


def test_a_table_of_contents_that_would_fill_the_memory(exported, tmp_path):
    with zipfile.ZipFile(exported, "a") as archive:
        for number in range(15_000):
            archive.writestr(f"{number:080}", b"")
    assert_refused(tmp_path, exported, "not a voice file")


def test_members_beyond_their_size(exported, tmp_path):
    assert_refused(tmp_path, changed(exported, **{"voice.json": b" " * (2**20 + 1)}), "too large")


def test_a_file_larger_than_allowed_is_not_opened(exported, tmp_path):
    target = registry(tmp_path / "other")
    with pytest.raises(VoiceFileInvalid, match="more than"):
        voice_file.import_voice(exported, add=target.add, max_bytes=1000)


def test_a_folder_of_voices_that_cannot_be_made_is_a_sentence(exported, tmp_path):
    target = registry(tmp_path / "other")
    target.folder.write_bytes(b"")
    with pytest.raises(VoiceError, match="cannot be stored"):
        target.import_(exported)


def test_a_full_disk_is_noticed_before(exported, tmp_path, monkeypatch):
    monkeypatch.setattr(voice_file, "_SPARE_BYTES", 2**62)
    assert_refused(tmp_path, exported, "Free some space")


@pytest.mark.parametrize("member", ["voice.json", "reference.wav"])
def test_content_that_is_not_what_the_manifest_says(exported, tmp_path, member):
    members = read_members(exported)
    members[member] = members[member][:-1] + b" "
    assert_refused(tmp_path, write_members(exported, members), f"checksum of {member}")


def test_bytes_changed_in_the_file(exported, tmp_path):
    content = bytearray(exported.read_bytes())
    at = content.index(b"WAVEfmt") + 5000
    content[at] ^= 1
    exported.write_bytes(content)
    assert_refused(tmp_path, exported, "cannot be read|checksum")


def test_a_truncated_file(exported, tmp_path):
    exported.write_bytes(exported.read_bytes()[:-200])
    assert_refused(tmp_path, exported, "not a voice file")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80\x04N.", b"RIFF" * 100, struct.pack("<I", 0) * 100])
def test_files_that_are_none(tmp_path, content):
    path = tmp_path / "tuned.encore-voice"
    path.write_bytes(content)
    assert_refused(tmp_path, path, "not a voice file")


def test_a_file_that_is_not_there(tmp_path):
    assert_refused(tmp_path, tmp_path / "gone", "cannot be opened")
    assert_refused(tmp_path, tmp_path, "cannot be opened")


@pytest.mark.parametrize("missing", ["voice.json", "reference.wav"])
def test_parts_that_are_missing(exported, tmp_path, missing):
    members = {name: content for name, content in read_members(exported).items() if name != missing}
    assert_refused(tmp_path, write_members(exported, members | {"manifest.json": None}), "has no|does not consist")


@pytest.mark.parametrize("manifest", [b"[]", b"{", b"\xff", b"[" * 100_000, b'{"format": "x"}', b'{"members": {}}'])
def test_manifests_that_are_none(exported, tmp_path, manifest):
    assert_refused(
        tmp_path, write_members(exported, read_members(exported) | {"manifest.json": manifest}), "its manifest"
    )


def edited_record(path, **fields):
    record = json.loads(read_members(path)["voice.json"])
    for name, value in fields.items():
        if value is ...:
            del record[name]
        else:
            record[name] = value
    return changed(path, **{"voice.json": json.dumps(record).encode()})


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"consent": ...}, "voice.json"),
        ({"consent": None}, "voice.json"),
        ({"id": "../../x"}, "voice.json"),
        ({"surprise": 1}, "voice.json"),
        ({"language": "a b"}, "voice.json"),
        ({"name": "../x"}, "cannot contain"),
        ({"sampling": {"temperature": -3}}, "temperature"),
        ({"kind": "fine-tuned"}, "no checkpoint"),
        ({"provenance": {"note": "\ud800"}}, "voice.json"),
        ({"transcript": "half a character \udfff"}, "voice.json"),
        ({"provenance": {"deep": json.loads("[" * 300 + "]" * 300)}}, "voice.json"),
        ({"sampling": {"top_k": 2**63}}, "top_k"),
        ({"sampling": {"temperature": 10**400}}, "temperature|voice.json"),
    ],
)
def test_records_that_are_none(exported, tmp_path, fields, match):
    assert_refused(tmp_path, edited_record(exported, **fields), match)


class _Evil:
    def __reduce__(self):
        return (print, ("run",))


@pytest.mark.parametrize(
    "prompt",
    [
        pickle.dumps({"speaker": _Evil()}),
        save({"speaker": torch.zeros(4, 4)}),
        save({"speaker": torch.zeros(4, dtype=torch.float64)}),
        save({"speaker": torch.zeros(4), "codes": torch.zeros(4, dtype=torch.int16)}),
        save({"speaker": torch.zeros(4), "codes": torch.zeros(4, 100, dtype=torch.int16)}),
        save({"speaker": torch.tensor([torch.inf])}),
        save({"other": torch.zeros(4)}),
        struct.pack("<Q", 2**60) + b"{}",
    ],
)
def test_prompts_that_are_none(exported, tmp_path, prompt, capfd):
    assert_refused(tmp_path, changed(exported, **{f"prompts/{'a' * 32}.safetensors": prompt}), "safetensors")
    assert capfd.readouterr().out == ""


def test_a_reference_that_is_no_recording(exported, tmp_path):
    assert_refused(tmp_path, changed(exported, **{"reference.wav": b"RIFF" + bytes(100)}), "reference.wav")


def _tensors(path, change):
    members = read_members(path)
    target = "custom_voice/model.safetensors"
    scratch = path.with_name("scratch.safetensors")
    scratch.write_bytes(members[target])
    state = load_file(scratch)
    change(state)
    save_file(state, scratch)
    return changed(path, **{target: scratch.read_bytes()})


def test_weights_of_other_shapes_types_and_names(tuned, tmp_path):
    original = tuned.read_bytes()

    def widen(state):
        state["talker.codec_head.weight"] = torch.zeros(3, 3)

    def count(state):
        state["talker.codec_head.weight"] = state["talker.codec_head.weight"].to(torch.int32)

    def lose(state):
        del state["talker.codec_head.weight"]

    def add(state):
        state["somebody.else"] = torch.zeros(1)

    for change, match in ((widen, "another shape"), (count, "another shape"), (lose, "missing"), (add, "unknown")):
        tuned.write_bytes(original)
        assert_refused(tmp_path, _tensors(tuned, change), match)


@pytest.mark.parametrize(
    ("member", "path", "value", "match"),
    [
        ("config.json", ("tts_model_type",), "base", "base one"),
        ("config.json", ("talker_config", "num_hidden_layers"), 10**9, "layers"),
        ("config.json", ("talker_config", "spk_id"), {}, "one speaker"),
        ("config.json", ("talker_config", "hidden_size"), 10**9, "hidden_size"),
        ("config.json", ("talker_config", "hidden_size"), 64, "does not fit|shape"),
        ("speech_tokenizer/config.json", ("decoder_config", "num_hidden_layers"), 10**9, "layers"),
        ("tokenizer_config.json", ("auto_map",), {"AutoTokenizer": "evil.Evil"}, "files outside the voice"),
        ("tokenizer_config.json", ("tokenizer_file",), "/etc/passwd", "files outside the voice"),
    ],
)
def test_configurations_that_lie(tuned, tmp_path, member, path, value, match):
    name = f"custom_voice/{member}"
    content = json.loads(read_members(tuned)[name])
    place = content
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert_refused(tmp_path, changed(tuned, **{name: json.dumps(content).encode()}), match)


def test_pickled_weights_are_refused(tuned, tmp_path):
    members = read_members(tuned)
    members["custom_voice/model.safetensors"] = pickle.dumps({"talker": _Evil()})
    assert_refused(tmp_path, write_members(tuned, members | {"manifest.json": None}), "safetensors")


def test_the_limits_hold_what_a_large_voice_needs():
    assert voice_archive.MAX_BYTES > 2 * 4_540_000_000


def test_export_and_import_report_progress_and_leave_nothing_when_cancelled(originals, tuned, tmp_path):
    told = []
    again = originals.export("Anna C", tmp_path / "again.encore-voice", report=lambda *counts: told.append(counts))
    assert told[-1][0] == told[-1][1] > 0
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert again.read_bytes() == tuned.read_bytes()

    def stop(*_):
        raise TaskCancelled("Stopped.")

    with pytest.raises(TaskCancelled):
        originals.export("Anna C", tmp_path / "stopped.encore-voice", report=stop)
    other = registry(tmp_path / "other")
    with pytest.raises(TaskCancelled):
        other.import_(tuned, report=stop)
    assert other.list() == ()
    assert list(other.folder.iterdir()) == []
    assert {path.name for path in tmp_path.glob("*.*")} == {"again.encore-voice", "tuned.encore-voice"}
