"""Nobody learns of what belongs to another tenant: it is as if it were not there. Every route has an entry here."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

import pytest

from backend.serving.api.factory import create_api
from backend.store.home import Home
from backend.store.trash import Trash
from backend.tenants.directory import TenantDirectory
from backend.tenants.keys import ApiKeys
from backend.tenants.tenant_store import HomeTenants
from tests.backend.serving.api.served import CONSENT, TEXT, ask, client_of

FORM = {"consent": CONSENT.statement, "consent_by": "Anna Example"}


@dataclass(frozen=True)
class Named:
    """A request that names an object: its kind, and what the path's or body's place for it is filled with."""

    kind: str
    json: object = None
    form: object = None


WHOLE = {"stream": False}

# Every route and method of the application: the requests that name something, each of which is made twice.
NAMING = {
    ("GET", "/v1/audio/voices/{voice_id}"): [Named("voice"), Named("voice name")],
    ("DELETE", "/v1/audio/voices/{voice_id}"): [Named("voice"), Named("voice name")],
    ("POST", "/v1/audio/voices/{voice_id}/restore"): [
        Named("deleted voice"), Named("deleted voice name"), Named("voice"),
    ],
    ("GET", "/v1/audio/takes/{take_id}"): [Named("take")],
    ("GET", "/v1/audio/takes/{take_id}/content"): [Named("take")],
    ("DELETE", "/v1/audio/takes/{take_id}"): [Named("take")],
    ("POST", "/v1/audio/takes/{take_id}/restore"): [Named("deleted take"), Named("take")],
    ("POST", "/v1/audio/speech"): [
        Named("voice", json=lambda it: ask(voice=it)),
        Named("voice name", json=lambda it: ask(voice=it)),
        Named("voice", json=lambda it: ask(voice={"id": it}, **WHOLE)),
        Named("voice name", form=lambda it: {"input": TEXT, "voice": it}),
    ],
    ("POST", "/v1/compare"): [Named("voice", json=lambda it: {"voices": ["Mine", it], "input": TEXT})],
}  # fmt: skip
# Those that name nothing, asked for as they are: what they answer tells nothing of anybody else.
NAMELESS = {
    ("GET", "/v1/audio/voices"),
    ("GET", "/v1/audio/takes"),
    ("GET", "/v1/audio/check"),
    ("GET", "/v1/models"),
    ("GET", "/openapi.json"),
    ("GET", "/healthz"),
    ("GET", "/metrics"),
}
# With tests of their own below: a name that another tenant has, and a file of theirs.
TESTED_BELOW = {("POST", "/v1/audio/voices"), ("POST", "/v1/audio/check")}


@pytest.fixture(scope="module")
def home(voices) -> Home:
    return Home(voices.folder.parent)


@pytest.fixture(scope="module")
def directory(home):
    return TenantDirectory(HomeTenants(home))


@pytest.fixture(scope="module")
def served(context, directory, home):
    """Clients of the operator, whose key is in the settings, and of two tenants."""
    app = create_api(context, api_keys=["of-the-operator"], directory=directory)
    keys = {"operator": "of-the-operator"} | {name: ApiKeys(home.database).add(name)[1] for name in ("alice", "bob")}
    return {
        name: client_of(app, headers={"authorization": f"Bearer {key}"}) for name, key in keys.items()
    }  # fmt: skip


@pytest.fixture(scope="module")
def alices(served, recording):
    """What the first tenant has, and the names under which others may look for it."""
    alice = served["alice"]

    def clone(client, name):
        file = {"audio_sample": ("a.wav", recording.read_bytes())}
        made = client.post("/v1/audio/voices", data={"name": name, **FORM}, files=file)
        assert made.status_code == 201, made.text
        return made.json()["id"]

    def speak():
        assert (
            alice.post("/v1/audio/speech", json=ask(voice="Secret", input="Private words.", **WHOLE)).status_code == 200
        )
        return alice.get("/v1/audio/takes").json()["data"][0]["id"]

    clone(served["bob"], "Mine")
    found = {"voice": clone(alice, "Secret"), "voice name": "Secret", "deleted voice name": "Forgotten"}
    found |= {"deleted voice": clone(alice, "Forgotten"), "take": speak(), "deleted take": speak()}
    alice.delete(f"/v1/audio/voices/{found['deleted voice']}")
    alice.delete(f"/v1/audio/takes/{found['deleted take']}")
    return found


def send(client, method, path, named: Named, it: str):
    parts = path.split("{")
    place = path if len(parts) == 1 else parts[0] + it + parts[1].partition("}")[2]
    body = {"json": named.json(it)} if named.json else {}
    if named.form:
        body = {"data": named.form(it), "files": {"ignored": ("", b"")}}
        body["files"] = {name: (None, value) for name, value in body.pop("data").items()}
    return client.request(method, place, **body)


def routes_of(router):
    """All methods and paths, of routers that were included as well."""
    for route in router.routes:
        # Newer versions of FastAPI keep an included router as one entry.
        if (included := getattr(route, "original_router", None)) is not None:
            yield from routes_of(included)
        else:
            yield from ((method, route.path) for method in route.methods - {"HEAD", "OPTIONS"})


def test_every_route_has_an_entry(app):
    """Add a new route to NAMING if its request names anything that belongs to somebody, and otherwise to NAMELESS."""
    documented = {(method.upper(), path) for path, ways in app.openapi()["paths"].items() for method in ways}
    assert documented <= set(routes_of(app))
    assert set(routes_of(app)) == NAMING.keys() | NAMELESS | TESTED_BELOW


@pytest.mark.parametrize("who", ["bob", "operator"])
@pytest.mark.parametrize(
    ("method", "path", "named"), [(*route, named) for route, all_named in NAMING.items() for named in all_named]
)
def test_what_is_anothers_is_as_if_it_were_not_there(served, alices, who, method, path, named):
    if who == "operator" and path == "/v1/compare":
        named = replace(named, json=lambda it: {"voices": ["Anna", it], "input": TEXT})
    it = alices[named.kind]
    nothing = uuid.uuid4().hex if len(it) == 32 else "Absent"
    answer, expected = (send(served[who], method, path, named, one) for one in (it, nothing))
    assert answer.status_code == expected.status_code == 404
    assert answer.text == expected.text.replace(nothing, it)
    assert answer.headers.keys() == expected.headers.keys()


@pytest.mark.parametrize("who", ["bob", "operator"])
@pytest.mark.parametrize(("method", "path"), sorted(NAMELESS))
def test_lists_tell_nothing_of_others(served, alices, who, method, path):
    answer = served[who].request(method, path)
    assert answer.status_code == (403 if path == "/metrics" and who == "bob" else 200)
    for word in (*alices.values(), "Private words", "alice"):
        assert word not in answer.text


def test_the_same_requests_find_it_for_whom_it_belongs_to(served, alices):
    alice = served["alice"]
    assert [voice["name"] for voice in alice.get("/v1/audio/voices").json()["data"]] == ["Secret"]
    assert [take["id"] for take in alice.get("/v1/audio/takes").json()["data"]] == [alices["take"]]
    assert alice.get(f"/v1/audio/takes/{alices['take']}/content").status_code == 200
    assert alice.post(f"/v1/audio/takes/{alices['deleted take']}/restore").status_code == 200
    assert alice.post("/v1/audio/voices/forgotten/restore").json()["id"] == alices["deleted voice"]
    assert alice.delete(f"/v1/audio/takes/{alices['deleted take']}").status_code == 200
    assert alice.delete("/v1/audio/voices/Forgotten").status_code == 200


def test_a_name_that_another_tenant_has_is_free(served, alices, recording):
    file = {"audio_sample": ("a.wav", recording.read_bytes())}
    made = served["bob"].post("/v1/audio/voices", data={"name": "Secret", **FORM}, files=file)
    assert made.status_code == 201
    assert served["alice"].get("/v1/audio/voices/secret").json()["id"] == alices["voice"]
    assert served["bob"].get("/v1/audio/voices/secret").json()["id"] == made.json()["id"]
    again = served["bob"].post("/v1/audio/voices", data={"name": "SECRET", **FORM}, files=file)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "voice_exists")
    assert served["bob"].delete(f"/v1/audio/voices/{made.json()['id']}?for_good=true").status_code == 200


def test_anothers_take_was_made_here_and_no_more_is_told(served, alices):
    sound = served["alice"].get(f"/v1/audio/takes/{alices['take']}/content").content
    found = {
        name: client.post("/v1/audio/check", files={"file": ("x.wav", sound)}).json() for name, client in served.items()
    }
    assert found["alice"]["is_made_by_encore"]
    assert found["alice"]["take"]["id"] == alices["take"]
    for name in ("bob", "operator"):
        assert found[name] == found["alice"] | {"take": None}


def test_emptying_the_trash_leaves_what_others_can_restore(home, alices):
    assert not {one.item_id for one in Trash(home).list()} & set(alices.values())
    Trash(home).empty()
    assert {one.item_id for one in Trash(home.of_tenant("alice")).list()} == {
        alices["deleted voice"],
        alices["deleted take"],
    }


def test_metrics_name_no_tenant(served):
    assert served["bob"].get("/metrics").json()["error"]["code"] == "operator_only"
    assert "encore_speeches_total" in served["operator"].get("/metrics").text
